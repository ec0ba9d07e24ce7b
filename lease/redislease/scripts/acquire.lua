-- acquire.lua
-- Grants the lease on a free key, or extends it for the owner that has it. Else joins the queue, if asked to, once
-- however often it is sent, and tells the holders that somebody waits.
--
-- KEYS[1]  lock     as in prelude.lua
-- KEYS[2]  queue    as in prelude.lua
-- KEYS[3]  counter  as in prelude.lua
-- ARGV[8]   owner   the lease asked for
-- ARGV[9]   form    M, W or R, as in the queue
-- ARGV[10]  ttl     milliseconds, above 0: of the lease, and of the place in the queue
-- ARGV[11]  size    of the block of tokens; 0: none
-- ARGV[12]  waits   1: join the queue
-- ARGV[13]  ask     1: the wants ask for an answer
-- ARGV[14]  age     µs for which the caller has been waiting; below 0: it stands behind all others
-- ARGV[15]  traced  1: the answer ends with the trace of the holder that it names, if there is one
--
-- Returns  {1, first, last, contended, already}           held, with the block of tokens; already: it was before, or 0
--          {2, left, rank, newest, holder, heard, trace}  waiting: ms until the first holder's end, place, newest token
--          {6, ...}                                       the same, but nobody listens to the owner's inbox on this node
--          {3, left, rank, newest, holder, 0, trace}      denied, nothing was changed
--          error KIND                                     in use as something else, nothing was changed
-- Time     the server's
-- Retry    safe: a repeat finds the lease or the place; it may leave an orphan, which its owner releases
local owner, form, ttl, size = ARGV[8], ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11])
local waits, ask, age, traced = ARGV[12] == '1', ARGV[13] == '1', tonumber(ARGV[14]), ARGV[15] == '1'

-- The short way of a mutex that nobody has and nobody waits for.
local busy = redis.call('EXISTS', lock, queue) > 0
if kind == 'mutex' and not busy then
  local first, last = 0, 0
  if size > 0 then
    first, last = take(size)
  end
  redis.call('HSET', lock, owner, 1)
  redis.call('PEXPIRE', lock, ttl)
  return {1, first, last, 0, 0}
end
-- functions.lua
if busy then
  load()
  local error = clash()
  if error then
    return error
  end
  if mine(owner) then
    look(false)
  else
    look(true)
    advance(owner, waits and not find(owner), string.upper(form) == 'R')
  end
else
  whole = true
end
return obtain(owner, form, ttl, size, waits, ask, age, traced)

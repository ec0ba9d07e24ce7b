-- release.lua
-- Takes the owner out of the holders, or out of the queue, whichever it is in, passes the key on, and then, if there
-- is a next, acquires for it with the queue: "yield and wait again" in one round trip.
--
-- KEYS[1]  lock     as in prelude.lua
-- KEYS[2]  queue    as in prelude.lua
-- KEYS[3]  counter  as in prelude.lua
-- ARGV[8]   owner  the lease, or the wait, to end
-- ARGV[9]   next   the owner to acquire for; empty: none, and what follows counts for nothing
-- ARGV[10]  form   M, W or R, as in the queue
-- ARGV[11]  ttl    milliseconds
-- ARGV[12]  size   of the block of tokens; 0: none
-- ARGV[13]  ask    1: the wants ask for an answer
-- ARGV[14]  age    µs for which next has been waiting; below 0: it stands behind all others
--
-- Returns  {5}                                     done, there was no next
--          {1, first, last, contended, 0}          next holds the lease
--          {2, left, rank, newest, holder, heard}  next waits
--          error KIND                              in use as something else, nothing was changed
-- Time     the server's
-- Retry    safe: touches its own owner only
local owner, successor = ARGV[8], ARGV[9]

-- leave takes a reader out; the expiry of the lock stays, for it is only ever lengthened.
local function leave(reader)
  deadlines[reader] = nil
  for i = #readers, 1, -1 do
    if readers[i] == reader then
      table.remove(readers, i)
    end
  end
  if #readers == 0 then
    redis.call('DEL', lock, deadline_key(reader))
    layout = nil
  else
    redis.call('HDEL', lock, reader)
    redis.call('DEL', deadline_key(reader))
  end
end

-- A mutex has one holder: where that was me it is free now, and nothing else needs to be read.
if kind == 'mutex' and redis.call('HDEL', lock, owner) == 1 then
  look(false)
else
  load()
  local error = clash()
  if error then
    return error
  end
  local held = mine(owner)
  if held == 'R' then
    leave(owner)
  elseif held then
    redis.call('DEL', lock)
    layout, writer = nil, nil
  end
  look(not held)
  if not held then
    local member = find(owner)
    if member then
      redis.call('ZREM', queue, member)
      for i = #places - 1, 1, -2 do
        if places[i] == member then
          table.remove(places, i)
          table.remove(places, i)
        end
      end
    end
  end
end
if successor == '' then
  advance()
  return {5}
end
advance(successor, not find(successor))
return obtain(successor, ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12]), true, ARGV[13] == '1', tonumber(ARGV[14]))

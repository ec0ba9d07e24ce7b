-- release.lua
-- Takes the owner out of the holders, or out of the queue, whichever it is in, passes the key on, and then, if there
-- is a next, acquires for it with the queue: "yield and wait again" in one round trip.
--
-- KEYS[1]  lock     as in prelude.lua
-- KEYS[2]  queue    as in prelude.lua
-- KEYS[3]  counter  as in prelude.lua
-- ARGV[8]   owner      the lease, or the wait, to end
-- ARGV[9]   next       the owner to acquire for; empty: none, and what follows of it counts for nothing
-- ARGV[10]  form       M, W or R, as in the queue
-- ARGV[11]  ttl        milliseconds
-- ARGV[12]  size       of the block of tokens; 0: none
-- ARGV[13]  ask        1: the wants ask for an answer
-- ARGV[14]  age        µs for which next has been waiting; below 0: it stands behind all others
-- ARGV[15]  traced     1: the answer ends with the trace of the holder that it names, if there is one
-- ARGV[16]  annotated  1: the owner's trace goes as well
-- ARGV[17]  trace      of the hold that has ended: who is granted the key is told it before; empty: none
--
-- Returns  {5}                                            done, there was no next
--          {1, first, last, contended, already}           next holds the lease; already: it did before, or 0
--          {2, left, rank, newest, holder, heard, trace}  next waits
--          {6, ...}                                       the same, but nobody listens to its inbox on this node
--          {3, left, rank, newest, holder, 0, trace}      next reads already, and wants to write: denied
--          error KIND                                     in use as something else, nothing was changed
-- Time     the server's
-- Retry    safe: touches its own owner only
local owner, successor = ARGV[8], ARGV[9]
local traced, annotated, trace = ARGV[15] == '1', ARGV[16] == '1', ARGV[17]

-- The short way of a mutex from hand to hand: what the long way does, in straight code. What it does not cover goes on
-- below, with the owner taken out already.
local freed = kind == 'mutex' and redis.call('HDEL', lock, owner) == 1
if freed and annotated then
  redis.pcall('HDEL', traces(), owner)
end
if freed and ARGV[13] ~= '1' then
  local front = redis.call('ZRANGE', queue, 0, 15, 'WITHSCORES')
  if #front == 0 and successor == '' then
    return {5}
  end
  local ttl, size, head = string.match(front[1] or '', '^M(%d+)/(%d+):(.+)$')
  local id = head and #front < 32 and string.match(head, '^(.*):%d+$')
  local ending = ':' .. successor
  for i = 1, #front, 2 do
    if string.sub(front[i], -#ending) == ending then
      id = nil -- the next has a place already: the long way knows what to do
    end
  end
  if id and listens(head) then
    local first, last = take(tonumber(size))
    redis.call('ZREM', queue, front[1])
    local contended = (#front > 2 or successor ~= '') and 1 or 0
    local channel, user_key = inbox .. id .. inbox_end, string.sub(lock, key_from)
    local grant = 'grant ' .. head .. ' ' .. digits(first) .. ' ' .. digits(last) .. ' ' .. contended .. ' '
    redis.call('HSET', lock, head, 1) -- before it is told, as in grant
    redis.call('PEXPIRE', lock, ttl)
    if trace ~= '' then
      redis.call(publish, channel, 'trace ' .. head .. ' 1 ' .. trace .. ' ' .. user_key)
    end
    redis.call(publish, channel, grant .. user_key)
    if successor == '' then
      return {5}
    end
    local age, score, rank = tonumber(ARGV[14]), now(), 0
    if age >= 0 then
      score = score - age
    elseif #front > 2 then
      score = math.max(score, front[#front] + 1)
    end
    local place = ARGV[10] .. ARGV[11] .. '/' .. digits(math.max(1, tonumber(ARGV[12]))) .. ':' .. successor
    for i = 3, #front, 2 do
      local other = tonumber(front[i + 1])
      if other < score or other == score and front[i] < place then
        rank = rank + 1
      end
    end
    redis.call('ZADD', queue, 'NX', digits(score), place)
    if redis.call('PTTL', queue) < ARGV[11] * 7 / 8 then
      redis.call('PEXPIRE', queue, ARGV[11])
    end
    return {2, tonumber(ttl), rank, last, head, 1} -- it has no trace yet
  end
end
-- functions.lua

passing = trace

-- A mutex has one holder: where that was me it is free now, and nothing else needs to be read.
local wrote = false
if freed then
  look(false)
else
  load()
  local error = clash()
  if error then
    return error
  end
  if annotated then
    redis.pcall('HDEL', traces(), owner)
  end
  local held = mine(owner)
  if held == 'R' then
    leave(owner)
  elseif held then
    redis.call('DEL', lock)
    layout, writer = nil, nil
    wrote = held == 'W'
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
  advance(nil, false, false, wrote)
  return {5}
end
advance(successor, not find(successor), string.upper(ARGV[10]) == 'R', wrote)
local ttl, size, ask, age = tonumber(ARGV[11]), tonumber(ARGV[12]), ARGV[13] == '1', tonumber(ARGV[14])
return obtain(successor, ARGV[10], ttl, size, true, ask, age, traced)

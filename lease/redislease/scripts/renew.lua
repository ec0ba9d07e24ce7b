-- renew.lua
-- Gives a lease its full time to live again, and says how many wait.
--
-- KEYS[1]  lock     as in prelude.lua
-- KEYS[2]  queue    as in prelude.lua; without it and the counter (while a slot moves) only the lock is extended
-- KEYS[3]  counter  as in prelude.lua
-- ARGV[8]   owner      the lease
-- ARGV[9]   ttl        milliseconds, above 0
-- ARGV[10]  size       of the block of tokens; 0: none
-- ARGV[11]  annotated  1: the owner's trace lives as long
--
-- Returns  {1, first, last, contended, waiters}  held; tokens are 0 where none were asked for
--          {4}                                   lost: the lease is not, or no longer, the owner's
-- Time     the server's
-- Retry    safe: extends its own lease only, and never shortens it
local owner, ttl, size, annotated = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11] == '1'

local function keep_trace()
  if annotated then
    redis.pcall('PEXPIRE', traces(), redis.call('PTTL', lock))
  end
end

-- The short way of a mutex whose process needs no tokens.
if kind == 'mutex' and queue and size <= 0 then
  local fields = redis.call('HMGET', lock, owner, 'mode')
  if not fields[1] or fields[2] then
    return {4}
  end
  if redis.call('PTTL', lock) < ttl then
    redis.call('PEXPIRE', lock, ttl)
  end
  keep_trace()
  local count = redis.call('ZCARD', queue)
  if count > 0 and redis.call('PTTL', queue) < ttl * 7 / 8 then
    redis.call('PEXPIRE', queue, ttl)
  end
  return {1, 0, 0, count > 0 and 1 or 0, count}
end

-- The short way of a reader that renewed a moment ago and only looks: each time that another reader comes or goes, all
-- look. Those that are past their deadline are dropped by a renewal that is due.
if kind == 'rw' and queue and size <= 0 then
  local fields = redis.call('HMGET', lock, 'mode', owner)
  if fields[1] == 'read' and fields[2] then
    local deadline = string.sub(queue, 1, tail_from - 6) .. 'reader:' .. owner .. string.sub(queue, tail_from)
    local ends, start = string.match(redis.call('GET', deadline) or '', '^(%d+):(%d+)$')
    local at = math.floor(now() / 1000)
    if ends and tonumber(ends) - at > ttl * 3 / 4 then
      redis.call('SET', deadline, digits(math.max(at + ttl, tonumber(ends))) .. ':' .. start, 'PX', math.max(ttl, tonumber(ends) - at))
      if redis.call('PTTL', lock) < ttl then
        redis.call('PEXPIRE', lock, math.floor(ttl * 5 / 4))
      end
      keep_trace()
      local count = redis.call('ZCARD', queue)
      if count > 0 and redis.call('PTTL', queue) < ttl * 7 / 8 then
        redis.call('PEXPIRE', queue, ttl)
      end
      return {1, 0, 0, count > 0 and 1 or 0, count}
    end
  end
end
-- functions.lua
if not queue then
  local field = kind == 'mutex' and owner or owner .. ':write'
  if redis.call('HEXISTS', lock, field) == 0 and redis.call('HEXISTS', lock, owner) == 0 then
    return {4}
  end
  extend(owner, ttl)
  return {1, 0, 0, 0, 0}
end
if kind == 'mutex' then
  local fields = redis.call('HMGET', lock, owner, 'mode')
  if not fields[1] or fields[2] then
    return {4}
  end
else
  if load() then -- somebody's lease has ended
    look(false)
    advance()
  end
  if layout ~= 'rw' or not mine(owner) then
    return {4}
  end
end
extend(owner, ttl)
keep_trace()
local count = redis.call('ZCARD', queue)
if count > 0 then
  keep_queue(ttl)
end
local first, last = refresh(owner, size)
return {1, first, last, count > 0 and 1 or 0, count}

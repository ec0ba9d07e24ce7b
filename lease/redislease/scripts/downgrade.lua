-- downgrade.lua
-- Turns the writer's lease into a reader's in place, and lets in the readers that wait in front.
--
-- KEYS[1]  lock     as in prelude.lua
-- KEYS[2]  queue    as in prelude.lua
-- KEYS[3]  counter  as in prelude.lua
-- ARGV[8]   owner      the lease
-- ARGV[9]   ttl        milliseconds, above 0
-- ARGV[10]  size       of the block of tokens; 0: none
-- ARGV[11]  annotated  1: the owner's trace lives as long
--
-- Returns  {1, first, last, contended, waiters}  held, to read; tokens are 0 where none were asked for
--          {4}                                   lost: the lease is not, or no longer, the owner's
--          error KIND                            in use as something else, nothing was changed
-- Time     the server's
-- Retry    safe: a repeat finds a reader, and extends it
-- functions.lua
local owner, ttl, size = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10])

load()
local error = clash()
if error then
  return error
end
local held = mine(owner)
if not held then
  return {4}
end
if held == 'W' then
  local left = math.max(ttl, redis.call('PTTL', lock))
  local _, start = newest_token()
  redis.call('HDEL', lock, owner .. ':write')
  redis.call('HSET', lock, 'mode', 'read', owner, 1)
  writer, since[owner] = nil, start or digits(now())
  set_deadline(owner, math.floor(now() / 1000) + left, left)
  redis.call('PEXPIRE', lock, left)
else
  extend(owner, ttl)
end
if ARGV[11] == '1' then
  redis.pcall('PEXPIRE', traces(), redis.call('PTTL', lock))
end
look(false)
advance(nil, false, false, held == 'W')
local first, last = refresh(owner, size)
local count = redis.call('ZCARD', queue)
return {1, first, last, count > 0 and 1 or 0, count}

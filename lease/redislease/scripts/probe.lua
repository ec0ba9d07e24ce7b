-- probe.lua
-- Tries out every command that the other scripts call, in a form that does no harm, so that none of them is ever
-- stopped half way by a right that is missing. It stands alone, without the prelude.
--
-- KEYS[1]  scratch  a name of the caller's own, which is also its inbox's
-- ARGV[1]  publish  PUBLISH or SPUBLISH
--
-- Returns  {heard, command, error, command, error, ...}  how many received the message, and what went wrong
-- Time     none
-- Retry    safe: leaves nothing behind
local scratch, publish = KEYS[1], ARGV[1]
local heard = 0
local failures = {}
local function try(command, ...)
  local name, sub = string.match(command, '^(%u+)|(%u+)$')
  local result = sub and redis.pcall(name, sub, ...) or not sub and redis.pcall(command, ...)
  if type(result) == 'table' and result.err then
    failures[#failures + 1] = command
    failures[#failures + 1] = result.err
  elseif command == publish then
    heard = result
  end
end

try('EXISTS', scratch)
try('HSET', scratch, 'field', '1') -- the first change: a full server refuses no other after one
try('PEXPIRE', scratch, '1000')
try('PTTL', scratch)
try('HGETALL', scratch)
try('HEXISTS', scratch, 'field')
try('HMGET', scratch, 'field')
try('HDEL', scratch, 'field')
try('DEL', scratch)
try('SET', scratch, '1', 'PX', '1000')
try('GET', scratch)
try('MGET', scratch)
try('DEL', scratch)
try('ZADD', scratch, 'NX', '1', 'member')
try('PEXPIRE', scratch, '1000')
try('ZRANGE', scratch, '0', '0')
try('ZREVRANGE', scratch, '0', '0')
try('ZRANK', scratch, 'member')
try('ZCARD', scratch)
try('ZREM', scratch, 'member')
try('TIME')
try('PUBSUB|' .. (publish == 'PUBLISH' and 'NUMSUB' or 'SHARDNUMSUB'), scratch)
try(publish, scratch, 'probe')
table.insert(failures, 1, heard)
return failures

-- Tries out the commands that the scripts call, on a key that nothing else uses: a user who may not run one would be
-- stopped half way through another script.
--
-- KEYS[1]  rights  left as it was found: not there
--
-- Returns  {command, error, ...}  those that are refused
-- Retry    safe
local key = KEYS[1]
local refused = {}
for _, command in ipairs({
  {'HSET', key, 'a', '1'}, {'HSETNX', key, 'b', '1'}, {'HINCRBY', key, 'a', 1}, {'HGET', key, 'a'}, {'HMGET', key, 'a'},
  {'HGETALL', key}, {'HLEN', key}, {'HSCAN', key, 0}, {'HDEL', key, 'a', 'b'},
  {'ZADD', key, 1, 'a'}, {'ZRANGE', key, 0, 0}, {'ZRANGEBYSCORE', key, 0, 1}, {'ZREM', key, 'a'},
  {'SET', key, 'a'}, {'GET', key}, {'PEXPIRE', key, 1000}, {'UNLINK', key},
}) do
  local answer = redis.pcall(unpack(command))
  if type(answer) == 'table' and answer.err then
    refused[#refused + 1] = command[1]
    refused[#refused + 1] = answer.err
  end
end
return refused

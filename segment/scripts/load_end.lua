-- Ends what load_begin has begun, when every segment is set up.
--
-- KEYS[1]  meta
-- ARGV[1]  set  of the epoch that was loaded
-- ARGV[2]  by   names this call of Load
--
-- Returns  {}  it is loaded, by this call
-- Retry    safe
local found = redis.call('HMGET', KEYS[1], 'set', 'loading', 'by')
if found[1] == ARGV[1] and not found[2] then
  if found[3] == ARGV[2] then
    return {}
  end
  return redis.error_reply('LOADED ' .. found[1])
elseif found[2] ~= ARGV[1] then
  return redis.error_reply('EPOCH ' .. (found[2] or found[1] or ''))
end
redis.call('HSET', KEYS[1], 'set', ARGV[1], 'by', ARGV[2], 'most', string.match(ARGV[1], '^%d+:(%d+)'))
redis.call('HDEL', KEYS[1], 'loading')
return {}

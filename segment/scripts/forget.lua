-- Forgets a stock whose segments have been dropped, unless it was loaded again meanwhile.
--
-- KEYS[1]  meta
-- ARGV[1]  set      as attach told them
-- ARGV[2]  loading
--
-- Returns  {}
-- Retry    safe
local found = redis.call('HMGET', KEYS[1], 'set', 'loading')
if found[1] or found[2] then
  if (found[1] or '') ~= ARGV[1] or (found[2] or '') ~= ARGV[2] then
    return redis.error_reply('EPOCH ' .. (found[2] or found[1]))
  end
end
redis.call('UNLINK', KEYS[1])
return {}

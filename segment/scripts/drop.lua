-- Drops all that belongs to a segment, unless it is of a newer epoch than the caller knows.
--
-- KEYS[1]  books
-- KEYS[...]  everything else of the segment
-- ARGV[1]  epoch  the newest that is to be dropped
--
-- Returns  {}  it is gone
-- Retry    safe
local set = redis.call('HGET', KEYS[1], 'set')
if set and tonumber(string.match(set, '^%d+')) > tonumber(ARGV[1]) then
  return redis.error_reply('EPOCH ' .. set)
end
redis.call('UNLINK', unpack(KEYS))
return {}

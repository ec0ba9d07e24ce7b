-- Begins to load a stock, or to load it anew, or goes on where somebody has begun and not ended.
--
-- KEYS[1]  meta   hash, at segment 0: set (of the epoch in use), loading (of the one being loaded), total, next, by, most
--                 (the largest number of segments of all that was begun since the last end)
-- ARGV[1]  settings  <segments>:<remember>:<limit>
-- ARGV[2]  total     units
-- ARGV[3]  by        names this call of Load
-- ARGV[4]  reset     1: also where the stock is loaded
-- ARGV[5]  last      of reset: the newest epoch that the caller has seen. A copy that comes late, when another was begun, is refused
--
-- Returns  {epoch, most}           as texts: go on and load
--          {}                       it is loaded, by this very call
-- Retry    safe
local found = redis.call('HMGET', KEYS[1], 'set', 'loading', 'total', 'next', 'by', 'most')
local set, loading, total, last, by = found[1], found[2], found[3], tonumber(found[4] or 0), found[5]
if set and not loading and by == ARGV[3] then
  return {}
elseif loading and by == ARGV[3] or loading and ARGV[4] == '0' and total == ARGV[2] and loading == text(last) .. ':' .. ARGV[1] then
  return {text(last), found[6]}
elseif ARGV[4] == '0' and loading then
  return redis.error_reply('HALFLOADED ' .. total .. ' ' .. loading)
elseif ARGV[4] == '0' and set and string.match(set, ':(.*)') ~= ARGV[1] then
  return redis.error_reply('EPOCH ' .. set)
elseif ARGV[4] == '0' and set then
  return redis.error_reply('LOADED ' .. set)
end
if ARGV[4] == '1' and text(last) ~= ARGV[5] then
  return redis.error_reply('EPOCH ' .. text(last))
end
-- The clock, so that the epochs of a stock that was dropped are not used again.
local epoch = text(math.max(last + 1, now))
local most = text(math.max(tonumber(found[6] or 0), tonumber(string.match(ARGV[1], '^%d+'))))
redis.call('HSET', KEYS[1], 'loading', epoch .. ':' .. ARGV[1], 'total', ARGV[2], 'next', epoch, 'by', ARGV[3], 'most', most)
return {epoch, most}

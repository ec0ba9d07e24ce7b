-- Gives units of this segment to another: at least what it wants, if they are here, and half of what is here. The total ever given to
-- it is what is told: told twice, or late, it is worth nothing more.
--
-- KEYS[1]  books
-- ARGV[1]  set   the settings that the caller knows
-- ARGV[2]  home  the segment that gets
-- ARGV[3]  got   what it has ever received from here, as it was seen there
-- ARGV[4]  want  units; -1: give none, only look
--
-- Returns  {given, left, units}  as texts: the total ever given to home, what is left here, and what was given now
-- Retry    safe: more units may move
local found = redis.call('HMGET', KEYS[1], 'set', 'left', 'given:' .. ARGV[2], 'gave', 'short', 'rev')
if not found[1] then
  return redis.error_reply('UNLOADED the stock is not loaded')
elseif found[1] ~= ARGV[1] then
  return redis.error_reply('EPOCH ' .. found[1])
end
local left, given, gave, short = tonumber(found[2]), tonumber(found[3] or 0), tonumber(found[4] or 0), tonumber(found[5] or 0)
local got, want = tonumber(ARGV[3]), tonumber(ARGV[4])
local changed, units = false, 0
if got > given then
  -- A failover has lost that they were given: they are at home, and here as well.
  gave = gave + (got - given)
  left = left - (got - given)
  given = got
  if left < 0 then
    short = short - left
    left = 0
  end
  changed = true
end
if want >= 0 then
  -- Numbers are exact up to 2^53: what would be over it stays here.
  units = math.max(0, math.min(left, math.max(want - (given - got), math.floor(left / 2)), 9007199254740991 - gave))
  if units > 0 then
    left, given, gave = left - units, given + units, gave + units
    changed = true
  end
end
if changed then
  redis.call('HSET', KEYS[1], 'left', text(left), 'given:' .. ARGV[2], text(given), 'gave', text(gave), 'short', text(short),
    'rev', text(tonumber(found[6] or 0) + 1))
end
return {text(given), text(left), text(units)}

-- Tells what a segment has ever given to, and received from, each other one.
--
-- KEYS[1]  books
-- ARGV[1]  set  the settings that the caller knows
--
-- Returns  {'given' or 'got', segment, units, ...}  as texts
-- Retry    safe
local all = redis.call('HGETALL', KEYS[1])
local answer, set = {}, nil
for i = 1, #all, 2 do
  local what, other = string.match(all[i], '^(g%a+):(%d+)$')
  if what then
    answer[#answer + 1] = what
    answer[#answer + 1] = other
    answer[#answer + 1] = all[i + 1]
  elseif all[i] == 'set' then
    set = all[i + 1]
  end
end
if not set then
  return redis.error_reply('UNLOADED the stock is not loaded')
elseif set ~= ARGV[1] then
  return redis.error_reply('EPOCH ' .. set)
end
return answer

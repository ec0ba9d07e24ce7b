-- Looks at a segment, and sends back what is due.
--
-- KEYS, ARGV[1] to [4]: see books.lua
-- KEYS[8]  parts  sorted set: see parts.lua
--
-- Returns  {'now', bucket, stored}   another bucket: nothing was done
--          {more, µs to the earliest deadline of what is open or -1, name, value, name, value, ...}
--          more: 1 if reservations past their deadline are left. The books, as texts. One name is
--          overdue: {field, value, ...} of open, of orders over several stocks that have passed their deadline, at most 16
-- Retry    safe
-- books.lua
local more = resolve()
save()
local earliest = -1
if books.opens > 0 then
  local first = redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')
  if first[2] then
    earliest = math.max(tonumber(first[2]) - now, 0)
  end
end
local answer = {more, earliest, 'rev', redis.call('HGET', KEYS[1], 'rev')}
for _, name in ipairs(names) do
  if name ~= 'rev' then
    answer[#answer + 1] = name
    answer[#answer + 1] = text(books[name])
  end
end
if books.opens > 0 then
  local overdue = {}
  for _, order in ipairs(redis.call('ZRANGEBYSCORE', KEYS[8], '-inf', '(' .. text(now), 'LIMIT', 0, 16)) do
    overdue[#overdue + 1] = order
    overdue[#overdue + 1] = redis.call('HGET', KEYS[4], order)
  end
  answer[#answer + 1] = 'overdue'
  answer[#answer + 1] = overdue
end
return answer

-- The short way of orders.lua, for what most batches are: orders to be deducted, with an ID or with neither ID nor user, at a segment
-- where nothing is open, of a stock with no limit per user. Where it is not so, nothing is done. What D and A do must be what they
-- do in orders.lua; a test compares them.
--
-- KEYS[1]  books
-- KEYS[2]  orders
-- KEYS[3]  before
-- ARGV[1]  set       the settings that the caller knows
-- ARGV[2]  remember  in µs
-- ARGV[3]  bucket    the one that the caller named in KEYS
-- ARGV[4]  limit     not used
-- ARGV[5]  credits   not used
-- ARGV[...] groups, as those of orders.lua
--
-- Returns  {'now', bucket, stored}   another bucket: nothing was done
--          {'long'}                  something is open: nothing was done
--          {'all'}                   everything was done
--          {0, answers...}           as orders.lua
-- Retry    safe for D, not for A
local call = redis.call
local found = call('HMGET', KEYS[1], 'set', 'bucket', 'prev', 'opens', 'left', 'took', 'rev')
if not found[1] then
  return redis.error_reply('UNLOADED the stock is not loaded')
elseif found[1] ~= ARGV[1] then
  return redis.error_reply('EPOCH ' .. found[1])
end
local bucket = math.max(found[2], math.floor(now / ARGV[2]))
if found[2] ~= ARGV[3] or text(bucket) ~= ARGV[3] then
  return {'now', text(bucket), found[2]}
elseif found[4] ~= '0' then
  return {'long'}
end
local left, took = tonumber(found[5]), tonumber(found[6])
local answers, a = {0}, 1
local all = true
local written, w = {}, 0
local args = #ARGV
local at = 6
-- What this batch has taken, by order, for one that comes twice. One group needs it only where units run out, or HSET finds
-- that one does.
local first = ARGV[at] ~= 'A' and tonumber(ARGV[at + 3]) or 0
local fresh = at + 3 + first < args and {} or nil
while at <= args do
  local quantity, count = ARGV[at + 1], tonumber(ARGV[at + 3])
  local n = tonumber(quantity)
  if ARGV[at] == 'A' then
    local served = math.min(count, math.floor(left / n))
    all = all and served == count
    left, took = left - served * n, took + served * n
    a = a + 1
    answers[a] = served
    at = at + 4
  else
    local from = at + 3
    local last = from + count
    local present = call('HMGET', KEYS[2], unpack(ARGV, at + 4, last))
    local before = found[3] == '1' and call('HMGET', KEYS[3], unpack(ARGV, at + 4, last))
    local value = 't' .. quantity
    for i = 1, count do
      local order = ARGV[from + i]
      local known = present[i] or before and before[i] or fresh and fresh[order]
      a = a + 1
      if not known then
        if left < n then
          all = false
          if not fresh then
            fresh = {}
            for j = 1, w, 2 do
              fresh[written[j]] = written[j + 1]
            end
          end
          answers[a] = fresh[order] == value and 2 or 0
        else
          left, took = left - n, took + n
          w = w + 2
          written[w - 1], written[w] = order, value
          answers[a] = 1
          if fresh then
            fresh[order] = value
          end
        end
      elseif known == value then
        answers[a] = 2
        all = false
      else
        return {'long'}
      end
    end
    at = last + 1
  end
end
if w > 0 then
  local added = call('HSET', KEYS[2], unpack(written))
  if added < w / 2 then
    -- One group, and an order in it more than once: the first is taken, the others are the same again.
    local n, seen = tonumber(ARGV[7]), {}
    for i = 1, first do
      local order = ARGV[9 + i]
      if answers[i + 1] == 1 and seen[order] then
        answers[i + 1] = 2
        left, took, all = left + n, took - n, false
      end
      seen[order] = true
    end
  end
end
if took > tonumber(found[6]) then
  call('HSET', KEYS[1], 'left', text(left), 'took', text(took), 'rev', text(found[7] + 1))
end
return all and {'all'} or answers

-- A batch of what orders ask of their home, in the order given. A refused order
-- leaves nothing.
--
-- KEYS, ARGV[1] to [4]: see books.lua
-- ARGV[5]   credits  how many donors' totals follow, each as <donor>, <units it has ever given to this segment>
-- ARGV[...] groups of orders that ask the same, each as <verb>, <quantity>, <ttl in µs>, <count>, and then, but for A, count orders:
--           D deduct    V reserve    C confirm   X cancel   R return   S restock
--           E extend    Q only ask  N deduct, with no ID    A deduct, with no ID and no user
--
-- Returns  {'now', bucket, stored}   another bucket: nothing was done
--          {more, answers...}        more: 1 if reservations past their deadline are left. One answer an order, of A one a
--                                    group: how many were served; of V and E, where it is reserved, {answer, µs left}
-- Retry    safe for all but N and A: what is on record is not done again
-- books.lua
local done, again, short = 1, 2, 0
local mismatch, returned, expired, reserved, over, unknown, busy, taken, full = -1, -2, -3, -4, -5, -6, -7, -8, -9

local more = resolve()

-- Units that were moved here: a donor's total counts once, however often it is told.
local at = 6
for _ = 1, tonumber(ARGV[5]) do
  local donor, total = 'got:' .. ARGV[at], tonumber(ARGV[at + 1])
  local got = tonumber(redis.call('HGET', KEYS[1], donor) or 0)
  if total > got then
    redis.call('HSET', KEYS[1], donor, text(total))
    books.left = books.left + total - got
    books.gotten = books.gotten + total - got
    books.ups = books.ups + 1
  end
  at = at + 2
end

-- What is on record of all orders, asked for at once.
local orders = {}
local from = at
while at <= #ARGV do
  local verb, count = ARGV[at], tonumber(ARGV[at + 3])
  if verb == 'A' then
    count = 0
  elseif verb ~= 'N' then
    for i = at + 4, at + 3 + count do
      orders[#orders + 1] = ARGV[i]
    end
  end
  at = at + 4 + count
end
local known = {} -- by order: its record or open entry; false: none
if #orders > 0 then
  local present = redis.call('HMGET', KEYS[2], unpack(orders))
  local before = books.prev == 1 and redis.call('HMGET', KEYS[3], unpack(orders)) or {}
  local open = books.opens > 0 and redis.call('HMGET', KEYS[4], unpack(orders)) or {}
  for i, order in ipairs(orders) do
    known[order] = open[i] or present[i] or before[i] or false
  end
  -- What resolve has just written is newer than what was read.
  for i = 1, #written, 2 do
    if known[written[i]] ~= nil then
      known[written[i]] = written[i + 1]
    end
  end
end

local function note(order, value)
  known[order] = value
  record(order, value)
end

-- The answer for an order that is on record: r.
local function repeated(r, quantity)
  local kind, n, attempt = string.match(r, '^(%a)(%d+)(.*)')
  if kind == 'p' or kind == 'd' then
    return busy
  elseif n ~= quantity or kind == 't' and attempt ~= '' then
    return mismatch
  elseif kind == 't' then
    return again
  elseif kind == 'r' then
    return returned
  elseif kind == 'x' then
    return expired
  end
  return reserved
end

local function deadline_of(r)
  return tonumber(string.match(r, ' (%d+)$'))
end

local function take(order, n)
  if books.left < n then
    return short
  elseif not charge(order, n) then
    return over
  end
  books.left = books.left - n
  return done
end

local verbs = {}

function verbs.D(order, quantity, n)
  if known[order] then
    return repeated(known[order], quantity)
  end
  local answer = take(order, n)
  if answer == done then
    books.took = books.took + n
    note(order, 't' .. quantity)
  end
  return answer
end

function verbs.N(order, _, n)
  local answer = take(order, n)
  if answer == done then
    books.took = books.took + n
  end
  return answer
end

function verbs.Q(order, quantity)
  return known[order] and repeated(known[order], quantity) or unknown
end

local function reserve(order, quantity, deadline)
  known[order] = 'v' .. quantity .. ' ' .. text(deadline)
  opened[#opened + 1] = order
  opened[#opened + 1] = known[order]
  deadlines[#deadlines + 1] = text(deadline)
  deadlines[#deadlines + 1] = order
end

function verbs.V(order, quantity, n, ttl)
  if known[order] then
    local answer = repeated(known[order], quantity)
    if answer == reserved then
      return {again, deadline_of(known[order]) - now}
    end
    return answer
  end
  local answer = take(order, n)
  if answer == done then
    books.reserved = books.reserved + n
    books.opens = books.opens + 1
    reserve(order, quantity, now + ttl)
    return {done, ttl}
  end
  return answer
end

-- A reservation as long as it is one: past its deadline it goes back, also where more of them wait for that.
local function standing(order, quantity)
  local answer = known[order] and repeated(known[order], quantity) or unknown
  if answer == reserved and deadline_of(known[order]) <= now then
    known[order] = 'x' .. quantity
    expire(order, quantity)
    return expired
  end
  return answer
end

function verbs.E(order, quantity, n, ttl)
  local answer = standing(order, quantity)
  if answer == reserved then
    reserve(order, quantity, math.max(deadline_of(known[order]), now + ttl))
    return {done, deadline_of(known[order]) - now}
  end
  return answer
end

function verbs.C(order, quantity, n)
  local answer = standing(order, quantity)
  if answer == reserved then
    close_reservation(order, n)
    books.took = books.took + n
    note(order, 't' .. quantity)
    return done
  end
  return answer
end

local function give_back(order, quantity, n)
  local answer = standing(order, quantity)
  if answer == reserved then
    close_reservation(order, n)
    put_back(order, n)
    note(order, 'r' .. quantity)
    return done
  elseif answer == unknown then
    -- A Deduct or Reserve that is still on its way shall not take.
    note(order, 'r' .. quantity)
  elseif answer == returned or answer == expired then
    return again
  end
  return answer
end

function verbs.X(order, quantity, n)
  local answer = give_back(order, quantity, n)
  if answer == again and string.sub(known[order], 1, 1) == 't' then
    return taken
  end
  return answer
end

function verbs.R(order, quantity, n)
  local answer = give_back(order, quantity, n)
  if answer == again and string.sub(known[order], 1, 1) == 't' then
    books.took = books.took - n
    put_back(order, n)
    note(order, 'r' .. quantity)
    return done
  end
  return answer
end

function verbs.S(order, quantity, n)
  if known[order] then
    return repeated(known[order], quantity)
  elseif books.loaded + n > 9007199254740991 then
    return full
  end
  books.loaded = books.loaded + n
  books.left = books.left + n
  books.ups = books.ups + 1
  note(order, 't' .. quantity)
  return done
end

local answers = {more}
at = from
while at <= #ARGV do
  local verb, quantity, ttl, count = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local n = tonumber(quantity)
  at = at + 4
  if verb == 'A' then
    local served = math.min(count, math.floor(books.left / n))
    books.left = books.left - served * n
    books.took = books.took + served * n
    answers[#answers + 1] = served
  else
    local call = verbs[verb]
    for i = at, at + count - 1 do
      answers[#answers + 1] = call(ARGV[i], quantity, n, ttl)
    end
    at = at + count
  end
end
save()
return answers

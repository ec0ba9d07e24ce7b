-- A batch of what orders ask of their home, in the order given. A refused order
-- leaves nothing.
--
-- KEYS, ARGV[1] to [4]: see books.lua
-- ARGV[5]   credits  how many donors' totals follow, each as <donor>, <units it has ever given to this segment>
-- ARGV[...] groups of orders that ask the same, each as <verb>, <quantity>, <ttl in µs>, <count>, and then, but for A, count orders:
--           D deduct    V reserve    C confirm   X cancel   R return   S restock
--           E extend    Q only ask  N deduct, with no ID    A deduct, with no ID and no user
--
-- A quantity of 0 stands, in C, X, R and Q, for the one on record.
--
-- Returns  {'now', bucket, stored}   another bucket: nothing was done
--          {more, answers...}        more: 1 if reservations past their deadline are left. One answer an order: a number, or,
--                                    where the caller can't know, {number, µs to its deadline, quantity on record}; of A one
--                                    a group: how many were served
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
    books.left = books.left + (total - got) -- in this order: the sum of the others may be over 2^53
    books.gotten = books.gotten + (total - got)
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

-- The answer for an order that is on record as r, the quantity there, and its deadline if it is reserved.
local function repeated(r, quantity)
  local kind, n, more_of_it = string.match(r, '^(%a)(%d+) ?(%d*)')
  if kind == 'p' then
    return busy, n
  elseif n ~= quantity and n ~= '0' and quantity ~= '0' or kind ~= 'v' and more_of_it ~= '' then
    return mismatch, n
  elseif kind == 't' then
    return again, n
  elseif kind == 'r' then
    return returned, n
  elseif kind == 'x' then
    return expired, n
  end
  return reserved, n, tonumber(more_of_it)
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

-- What an order is, its quantity, and its deadline if it is reserved. A reservation is one until its deadline; past
-- it goes back, also where more of them wait for that.
local function standing(order, quantity)
  if not known[order] then
    return unknown, quantity
  end
  local answer, n, deadline = repeated(known[order], quantity)
  if answer == reserved and deadline <= now then
    known[order] = 'x' .. n
    expire(order, n)
    return expired, n
  end
  return answer, n, deadline
end

local verbs = {}

function verbs.D(order, quantity, n)
  if known[order] then
    return (standing(order, quantity))
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

local function reserve(order, quantity, deadline)
  local value = 'v' .. quantity .. ' ' .. deadline
  known[order] = value
  opened[#opened + 1] = order
  opened[#opened + 1] = value
  deadlines[#deadlines + 1] = deadline
  deadlines[#deadlines + 1] = order
end

function verbs.V(order, quantity, n, ttl)
  if known[order] then
    local answer, on_record, deadline = standing(order, quantity)
    return answer == reserved and {again, deadline - now, tonumber(on_record)} or answer
  end
  local answer = take(order, n)
  if answer == done then
    books.reserved = books.reserved + n
    books.opens = books.opens + 1
    reserve(order, quantity, text(now + ttl))
  end
  return answer
end

function verbs.Q(order, quantity)
  if not known[order] then
    return unknown
  end
  local answer, on_record, deadline = repeated(known[order], quantity)
  local part = string.match(known[order], '^([dtgr])%d+ ')
  if part then -- of an order over several stocks
    answer = (part == 'd' or part == 't') and again or returned
  elseif answer == reserved and deadline <= now then
    answer = expired
  end
  return {answer, deadline and deadline - now or 0, tonumber(on_record)}
end

function verbs.E(order, quantity, n, ttl)
  local answer, _, deadline = standing(order, quantity)
  if answer == reserved then
    reserve(order, quantity, text(math.max(deadline, now + ttl)))
    return done
  end
  return answer
end

-- An answer, with the quantity on record where the caller did not name one.
local function told(answer, quantity, on_record)
  return quantity == '0' and {answer, 0, tonumber(on_record)} or answer
end

function verbs.C(order, quantity)
  local answer, on_record = standing(order, quantity)
  if answer == reserved then
    local n = tonumber(on_record)
    close_reservation(order, n)
    books.took = books.took + n
    note(order, 't' .. on_record)
    answer = done
  end
  return told(answer, quantity, on_record)
end

local function give_back(order, quantity)
  local answer, on_record = standing(order, quantity)
  if answer == reserved then
    local n = tonumber(on_record)
    close_reservation(order, n)
    put_back(order, n)
    note(order, 'r' .. on_record)
    return done, on_record
  elseif answer == unknown then
    -- A Deduct or Reserve that is still on its way shall not take.
    note(order, 'r' .. quantity)
    books.raised = books.raised + 1 -- it is on record now, and nobody who knows what is has it
  end
  return answer, on_record
end

function verbs.X(order, quantity)
  local answer, on_record = give_back(order, quantity)
  if answer == returned or answer == expired then
    return again
  end
  return told(answer == again and taken or answer, quantity, on_record)
end

function verbs.R(order, quantity)
  local answer, on_record = give_back(order, quantity)
  if answer == returned or answer == expired then
    return again
  elseif answer == again then
    local n = tonumber(on_record)
    books.took = books.took - n
    put_back(order, n)
    note(order, 'r' .. on_record)
    answer = done
  end
  return told(answer, quantity, on_record)
end

function verbs.S(order, quantity, n)
  if known[order] then
    return (repeated(known[order], quantity))
  elseif books.loaded + n > 9007199254740991 then
    return full
  end
  books.loaded = books.loaded + n
  add(n)
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

-- One step of an order over several stocks, at its home in one of them. Its home in the first stock, by name, is where it is
-- decided, and deals the attempts.
--
-- KEYS[1] to [7], ARGV[1] to [4]: see books.lua
-- KEYS[8]   parts     sorted set: what orders over several stocks have in open, by its deadline in µs
-- ARGV[5]   verb
-- ARGV[6]   order
-- ARGV[7]   lines     stands for all that the order wants
-- ARGV[8]   attempt   begin and recall: '', for they deal one
-- ARGV[9]   first     the home in the first stock, as Go writes it down; at that very home ''
-- ARGV[10]  quantity
-- ARGV[11]  detail    begin: names the call. commit, recall: the other homes. close: the kind of what ends
-- ARGV[12]  lasts     µs until the deadline
--
-- In open there is <kind><quantity> <attempt> <deadline> <lines> <home>, by kind:
--   p  a part: held until the order is decided. home is the first; there it is = and what names the call of begin
--   d  done: taken here, and to be finished at the homes that follow
--   g  given back here, and to be given back at the homes that follow
-- On record there is t<quantity> <attempt> <lines>, taken, or r<quantity> <attempt> <lines>, returned.
--
-- Returns  {'now', bucket, stored}   another bucket: nothing was done
--          {answer}                  see below
--          {answer, attempt}         of begin and recall; of abort, of the order that is decided
--          {outrun, 'late'}          of prepare: the attempt was dealt too long ago, by the clock here
--          {busy, entry, µs until its deadline}  there is a part of another attempt, which is not over
-- Retry    safe. A late copy does nothing, but for begin and prepare: they may hold a part until its deadline
-- books.lua
local done, again, short, mismatch, returned, over, unknown, busy, outrun = 1, 2, 0, -1, -2, -5, -6, -7, -10
local verb, order, lines, attempt, first, quantity, detail, lasts = unpack(ARGV, 5, 12)
local n = tonumber(quantity)
lasts = tonumber(lasts)
local late = 6 * lasts -- a prepare that is so old is refused: far less than what is on record stays there

-- What there is of the order: an entry in open, or a record.
local it = {}
local entry = books.opens > 0 and redis.call('HGET', KEYS[4], order)
if entry then
  local kind, units, by, deadline, of, home = string.match(entry, '^(%a)(%d+) (%d+) (%d+) (%x+) (.*)$')
  -- A reservation looks otherwise.
  it = {kind = kind or 'v', units = units, by = by, left = tonumber(deadline or 0) - now, of = of, home = home}
else
  local found = redis.call('HGET', KEYS[2], order) or books.prev == 1 and redis.call('HGET', KEYS[3], order)
  if found then
    local kind, units, by, of = string.match(found, '^(%a)(%d+) ?(%d*) ?(%x*)$')
    it = {kind = kind, units = units, by = by, of = of, record = true}
  end
end

-- Whether it is the part of this very attempt.
local function mine()
  if it.kind ~= 'p' or it.by ~= attempt then
    return false
  elseif first == '' then
    return string.sub(it.home, 1, 1) == '='
  end
  return it.home == first
end

-- The answer for what is no part.
local function decided()
  if it.of ~= lines then
    return {mismatch}
  elseif it.kind == 't' or it.kind == 'd' then
    return {again, it.by}
  end
  return {returned, it.by}
end

-- Writes an entry, or takes it away. The books' rev tells of either.
local function enter(kind, units, by, home)
  local deadline = text(now + lasts)
  redis.call('HSET', KEYS[4], order, table.concat({kind .. units, by, deadline, lines, home}, ' '))
  redis.call('ZADD', KEYS[8], deadline, order)
  redis.call('HINCRBY', KEYS[1], 'rev', 1)
  books.opens = books.opens + 1
end

local function leave()
  redis.call('HDEL', KEYS[4], order)
  redis.call('ZREM', KEYS[8], order)
  redis.call('HINCRBY', KEYS[1], 'rev', 1)
  books.opens = books.opens - 1
end

local function part_back()
  local units = tonumber(it.units)
  leave()
  books.parts = books.parts - units
  books.left = books.left + units -- they were available all the time
  charge(order, -units)
end

local function take()
  if books.left < n then
    return short
  elseif not charge(order, n) then
    return over
  end
  books.left = books.left - n
  books.parts = books.parts + n
  return done
end

local function deal()
  books.seq = math.max(books.seq + 1, now)
  return text(books.seq)
end

local verbs = {}

-- At the first home: takes its part, and deals the attempt.
function verbs.begin()
  local call = '=' .. detail
  if it.kind == 'p' then
    if it.home == call and it.of == lines and it.left > 0 then
      return {done, it.by}
    elseif string.sub(it.home, 1, 1) ~= '=' or it.home ~= call and it.left > 0.8 * lasts then
      -- A young one is left to whoever is at work; then that one is taken to have crashed.
      return {busy, entry, text(it.left)}
    end
    part_back()
  elseif it.kind then
    return decided()
  end
  local answer = take()
  if answer ~= done then
    return {answer}
  end
  local dealt = deal()
  enter('p', quantity, dealt, call)
  return {done, dealt}
end

-- At another home: takes its part, in the place of that of an older attempt.
function verbs.prepare()
  if mine() then
    return {done}
  elseif it.kind == 'p' and it.home ~= first then
    return {busy, entry, text(it.left)}
  elseif it.kind and it.kind ~= 'p' then
    return decided()
  elseif it.kind and tonumber(it.by) > tonumber(attempt) then
    return {outrun}
  elseif now - attempt > late then
    return {outrun, 'late'}
  elseif it.kind then
    part_back()
  end
  local answer = take()
  if answer == done then
    enter('p', quantity, attempt, first)
  end
  return {answer}
end

local function part_taken()
  local units = tonumber(it.units)
  leave()
  books.parts = books.parts - units
  books.took = books.took + units
end

-- At the first home: decides that the order is taken.
function verbs.commit()
  if mine() then
    if it.left < 0 then
      part_back()
      return {outrun}
    end
    part_taken()
    enter('d', it.units, attempt, detail)
    return {done}
  elseif (it.kind == 'd' or it.kind == 't') and it.by == attempt and it.of == lines then
    return {done}
  end
  return {outrun}
end

local function note(kind, units, by)
  record(order, table.concat({kind .. units, by, lines}, ' '))
end

-- At another home: the order was taken.
function verbs.finish()
  if mine() then
    part_taken()
    note('t', it.units, attempt)
  end
  return {done}
end

-- At the first home, when all others have finished.
function verbs.close()
  if it.kind == detail and it.by == attempt then
    leave()
    note(detail == 'd' and 't' or 'r', it.units, attempt)
  end
  return {done}
end

-- The attempt shall not be: its part goes back, and its commit will fail. Tells what was decided instead, if anything.
function verbs.abort()
  if mine() then
    part_back()
    return {done}
  elseif it.kind and it.kind ~= 'p' and it.of == lines then
    return decided()
  end
  return {unknown}
end

-- At the first home: decides that the order is given back, or, where it is not taken, that it won't be.
function verbs.recall()
  local units = tonumber(it.units)
  if it.kind == 'p' then
    if string.sub(it.home, 1, 1) ~= '=' then
      return {busy, entry, text(it.left)}
    end
    part_back()
  elseif it.kind and it.of ~= lines then
    return {mismatch}
  elseif it.kind == 't' or it.kind == 'd' then
    if it.kind == 'd' then
      leave()
    end
    books.took = books.took - units
    put_back(order, units)
    enter('g', it.units, it.by, detail)
    return {done, it.by}
  elseif it.kind == 'g' then
    return {again, it.by}
  elseif it.kind then
    return {again}
  end
  local dealt = deal()
  enter('g', quantity, dealt, detail)
  return {unknown, dealt}
end

-- At another home: the order was given back, and an attempt that is still on its way shall take nothing.
function verbs.undo()
  if it.kind == 't' and it.by == attempt and it.of == lines then
    local units = tonumber(it.units)
    books.took = books.took - units
    put_back(order, units)
    note('r', it.units, attempt)
    return {done}
  elseif it.kind == 'p' and it.home == first and tonumber(it.by) <= tonumber(attempt) then
    part_back()
  elseif it.kind then
    return {done}
  end
  note('r', quantity, attempt)
  return {done}
end

-- Only tells.
function verbs.see()
  if it.kind == 'p' then
    return {busy, entry, text(it.left)}
  end
  return {unknown}
end

local answer = verbs[verb]()
save()
return answer

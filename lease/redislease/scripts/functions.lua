-- functions.lua
-- What the scripts share. It is put where a script has a line with this file's name, in one chunk with it and the
-- prelude, so everything is local. A script pays for these definitions each time it runs: what is common, and can be
-- done in straight code, stands before that line.

-- What is known of the lock; load fills it in, hold and leave keep it right.
local layout       -- what it is held as: mutex, rw, other; nil: free
local writer       -- the exclusive owner
local readers = {} -- the shared owners, and when each one's lease ends, in ms
local deadlines = {}
local since = {}   -- of readers
local full         -- ms to live, where this script has just set it

local told = {}     -- who knows from a grant of this script that others wait
local passing = ''  -- the trace of the hold that has just ended
local reading -- a turn of readers has begun
local places, at, whole = {}, 1, false -- the front of the queue: member, score, member, score...

local function deadline_key(owner)
  return string.sub(queue, 1, tail_from - 6) .. 'reader:' .. owner .. string.sub(queue, tail_from)
end

local function conflict(what)
  return redis.error_reply('KIND the key is ' .. what)
end

-- read_deadlines asks for the deadlines of the names, and sorts the living from the dead.
local function read_deadlines(names)
  local dead = {}
  for from = 1, #names, 1000 do -- unpack has a limit of its own
    local keys = {}
    for i = from, math.min(from + 999, #names) do
      keys[#keys + 1] = deadline_key(names[i])
    end
    local values = redis.call('MGET', unpack(keys))
    for i = 1, #keys do
      local owner = names[from + i - 1]
      local ends, start = string.match(values[i] or '', '^(%d+):(%d+)$')
      if ends then
        readers[#readers + 1] = owner
        deadlines[owner], since[owner] = tonumber(ends), start
      else
        dead[#dead + 1] = owner
      end
    end
  end
  return dead
end

-- load reads who holds the lock. It drops readers past their deadline, unless it is only to look, and says whether
-- it found any.
local function load(only_look)
  local fields = redis.call('HGETALL', lock)
  local mode
  local names = {}
  for i = 1, #fields, 2 do
    if fields[i] == 'mode' then
      mode = fields[i + 1]
    else
      names[#names + 1] = fields[i]
    end
  end
  if #fields == 0 then
    return false
  elseif not mode then
    layout, writer = 'mutex', names[1]
    return false
  elseif mode == 'write' then
    layout = 'rw'
    for i = 1, #names do
      writer = string.match(names[i], '^(.*):write$') or writer
    end
    writer = writer or ''
    return false
  elseif mode ~= 'read' then
    layout, writer = 'other', ''
    return false
  end
  layout = 'rw'
  local dead = read_deadlines(names)
  if #readers == 0 then
    if redis.call('PTTL', lock) == -1 then
      layout, writer = 'other', '' -- the lock of dead readers has an expiry still
      return false
    end
    layout = nil
  end
  if #dead > 0 and not only_look then
    if #readers == 0 then
      redis.call('DEL', lock)
    else
      for i = 1, #dead do
        redis.call('HDEL', lock, dead[i])
      end
    end
  end
  return #dead > 0
end

-- clash is the error where the lock is held as something else than the caller uses it for.
local function clash()
  if layout and layout ~= kind then
    return conflict('in use as ' .. layout)
  end
end

-- newest_token is the newest token given out, and since when its holder held.
local function newest_token()
  local value = redis.call('GET', counter) or ''
  local token, start = string.match(value, '^(%d+):(%d+)$')
  return tonumber(token or '0'), start
end

-- tell publishes to the inbox of the owner's process, and says how many received it.
local function tell(owner, text)
  local id = string.match(owner, '^(.*):%d+$')
  if not id then
    return 0 -- a client of another make: it has no inbox
  end
  return redis.call(publish, inbox .. id .. inbox_end, text .. ' ' .. string.sub(lock, key_from))
end

local function set_deadline(owner, ends, ttl)
  readers[#readers + 1] = not deadlines[owner] and owner or nil
  deadlines[owner] = ends
  redis.call('SET', deadline_key(owner), digits(ends) .. ':' .. since[owner], 'PX', ttl)
end

-- live_for has the lock live for a reader's ttl, at least. It gets more, so that it is not changed at each renewal of
-- each reader: all of them are told of a change, and look. The readers' own deadlines say when it is free.
local function live_for(ttl)
  if redis.call('PTTL', lock) < ttl then
    redis.call('PEXPIRE', lock, math.floor(ttl * 5 / 4))
  end
end

-- hold makes the owner a holder; the caller has made sure that it may be one.
local function hold(owner, form, ttl)
  if form == 'R' then
    redis.call('HSET', lock, 'mode', 'read', owner, 1)
    since[owner] = digits(now())
    set_deadline(owner, math.floor(now() / 1000) + ttl, ttl)
    live_for(ttl)
    layout = 'rw'
    return
  end
  if form == 'W' then
    redis.call('HSET', lock, 'mode', 'write', owner .. ':write', 1)
    layout = 'rw'
  else
    redis.call('HSET', lock, owner, 1)
    layout = 'mutex'
  end
  redis.call('PEXPIRE', lock, ttl)
  writer, full = owner, ttl
end

-- mine says what the owner holds: M, W, R, or nil.
local function mine(owner)
  if writer == owner then
    return layout == 'mutex' and 'M' or 'W'
  end
  return deadlines[owner] and 'R' or nil
end

-- extend gives a holder a full time to live again, and never shortens it.
local function extend(owner, ttl)
  local ends = deadlines[owner]
  if ends then
    live_for(ttl)
  elseif redis.call('PTTL', lock) < ttl then
    redis.call('PEXPIRE', lock, ttl)
  end
  if ends and ends < math.floor(now() / 1000) + ttl then
    set_deadline(owner, math.floor(now() / 1000) + ttl, ttl)
  end
end

-- refresh takes a block for somebody who holds already.
local function refresh(owner, size)
  if size <= 0 then
    return 0, 0
  end
  local token, start = newest_token()
  newest = token
  return take(size, since[owner] or start)
end

-- look reads the queue: its front, or all of it.
local function look(all)
  places = redis.call('ZRANGE', queue, 0, all and -1 or 15, 'WITHSCORES')
  at, whole = 1, all or #places < 32
end

local function waiting()
  return at <= #places or not whole
end

-- keep_queue lets the queue live for ttl, give or take an eighth, and never shortens it.
local function keep_queue(ttl)
  if redis.call('PTTL', queue) < ttl - ttl / 8 then
    redis.call('PEXPIRE', queue, ttl)
  end
end

-- others says whether somebody stays behind when the place before at was let in: readers at the front come in too.
local function others(form)
  local i = at
  while form == 'R' and i <= #places and string.find(places[i], '^[Rr]') do
    i = i + 2
  end
  return i <= #places or not whole
end

-- leave takes a reader out; the expiry of the lock stays, for it is only ever lengthened.
local function leave(reader)
  deadlines[reader] = nil
  for i = #readers, 1, -1 do
    if readers[i] == reader then
      table.remove(readers, i)
    end
  end
  if #readers == 0 then
    redis.call('DEL', lock, deadline_key(reader))
    layout = nil
  else
    redis.call('HDEL', lock, reader)
    redis.call('DEL', deadline_key(reader))
  end
end

-- grant makes the owner of a place a holder, and tells it. One whose inbox nobody listens to here is gone, and is passed
-- over; it is told nothing, for what is published reaches those who listen at a replica as well. It is told when the
-- change is made: where that fails (while a slot moves, a lock without a holder can't be given one) the script ends
-- there, and nobody believes that he holds.
local function grant(owner, form, ttl, size, contended)
  local capital = string.upper(form)
  if form == capital and not listens(owner) then
    return
  end
  local first, last = take(tonumber(size))
  hold(owner, capital, tonumber(ttl))
  if passing ~= '' then
    tell(owner, 'trace ' .. owner .. ' 1 ' .. passing)
  end
  local heard = tell(owner, 'grant ' .. owner .. ' ' .. digits(first) .. ' ' .. digits(last) .. ' ' .. (contended and 1 or 0))
  told[owner] = contended and heard > 0
end

-- begin_reading lets in all readers that wait, whoever stands before them, if it is their turn: when a writer leaves
-- (wrote), and on a free key when the head of the queue reads. reads: so does me, which learns by the reply.
local function begin_reading(me, joining, reads, wrote)
  if wrote and not whole then
    look(true)
  end
  local turn = wrote and reads or string.find(places[at] or '', '^[Rr]')
  for i = at, wrote and #places or 0, 2 do
    turn = turn or string.find(places[i], '^[Rr]')
  end
  if not turn then
    return
  end
  if not whole then
    look(true)
  end
  reading = true
  local rest, inside = {}, {}
  for i = at, #places, 2 do
    local form, ttl, size, owner = string.match(places[i], '^([Rr])(%d+)/(%d+):(.+)$')
    if form and owner ~= me then
      inside[#inside + 1] = {owner, form, ttl, size}
      redis.call('ZREM', queue, places[i])
    else
      rest[#rest + 1] = places[i]
      rest[#rest + 1] = places[i + 1]
    end
  end
  local behind = joining and not reads
  for i = 1, #rest, 2 do
    behind = behind or not string.find(rest[i], '^[Rr]')
  end
  places, at = rest, 1
  for i = 1, #inside do
    grant(inside[i][1], inside[i][2], inside[i][3], inside[i][4], behind)
  end
end

-- advance passes the key on to the front of the queue while it can, up to the place of me. Where nobody listens the
-- process is gone: the next one's turn. joining: somebody will stand behind. reads: me does;
-- wrote: a writer has just left, or become a reader.
local function advance(me, joining, reads, wrote)
  if wrote or not layout then
    begin_reading(me, joining, reads, wrote)
    if reading and reads then
      return
    end
  end
  while not writer do
    if at > #places then
      if whole then
        return
      end
      look(false) -- all that was read before has left the queue
      if #places == 0 then
        return
      end
    end
    local form, ttl, size, owner = string.match(places[at], '^(%a)(%d+)/(%d+):(.+)$')
    local capital = string.upper(form or '')
    if me and owner == me then
      return
    elseif form and layout and capital ~= 'R' then
      return
    end
    redis.call('ZREM', queue, places[at])
    at = at + 2
    if form then
      grant(owner, form, ttl, size, joining or others(capital))
    end
  end
end

-- remaining is the soonest end among the holders in ms, or nil where the key has none: then it is no lock.
local function remaining()
  if full then
    return full
  elseif #readers == 0 then
    local left = redis.call('PTTL', lock)
    return left >= 0 and left or nil
  end
  local soonest = math.huge
  for i = 1, #readers do
    soonest = math.min(soonest, deadlines[readers[i]])
  end
  return math.max(0, soonest - math.floor(now() / 1000))
end

-- find returns the place of the owner in what was read of the queue.
local function find(owner)
  local ending = ':' .. owner
  for i = at, #places, 2 do
    if string.sub(places[i], -#ending) == ending then
      return places[i], tonumber(places[i + 1])
    end
  end
end

-- join puts the owner into the queue, once, and returns its rank. age (in µs) is how long it has been waiting; below
-- zero it stands behind all others.
local function join(owner, form, ttl, size, age, member, score)
  local wanted = form .. digits(ttl) .. '/' .. digits(math.max(1, size)) .. ':' .. owner
  if not member then
    if age >= 0 then
      score = now() - age
    else
      local highest = places[#places]
      if not whole then
        highest = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
      end
      score = math.max(now(), (tonumber(highest) or 0) + 1)
    end
  end
  if member ~= wanted then
    if member then
      redis.call('ZREM', queue, member) -- its time to live has changed: the place stays
    end
    redis.call('ZADD', queue, 'NX', digits(score), wanted)
  end
  keep_queue(ttl)
  if not whole then
    return redis.call('ZRANK', queue, wanted)
  end
  local rank = 0
  for i = at, #places, 2 do
    local other = tonumber(places[i + 1])
    if places[i] ~= member and (other < score or other == score and places[i] < wanted) then
      rank = rank + 1
    end
  end
  return rank
end

-- want tells every holder that the owner waits, and returns how many heard it. A holder that was made one by this
-- script knows from its grant.
local function want(owner, ask)
  local text = ' ' .. (ask and owner or '-')
  local heard = 0
  local holders = writer and {writer} or readers
  for i = 1, #holders do
    local holder = holders[i]
    if told[holder] and not ask or tell(holder, 'want ' .. holder .. text) > 0 then
      heard = heard + 1
    end
  end
  return heard
end

-- trace_of is the trace of a holder, or nil.
local function trace_of(holder)
  return redis.pcall('HMGET', traces(), holder)[1] or nil
end

-- obtain is the second half of an acquire, behind load, look and advance.
local function obtain(owner, form, ttl, size, waits, ask, age, traced)
  local error = clash()
  if error then
    return error
  end
  local capital = string.upper(form)
  local held = mine(owner)
  if held and (capital == 'R' or held ~= 'R') then
    extend(owner, ttl)
    local first, last = refresh(owner, size)
    return {1, first, last, waiting() and 1 or 0, 1}
  end
  local member, score = find(owner)
  local ahead = at <= #places or not whole -- somebody is before me
  if member then
    ahead = places[at] ~= member
  elseif ahead and waits and age >= 0 then
    ahead = at > #places or tonumber(places[at + 1]) <= now() - age
  end
  if reading and capital == 'R' then
    ahead = false
  end
  if not ahead and not held and (not layout or capital == 'R' and not writer) then
    if member then
      redis.call('ZREM', queue, member)
      for i = at, #places, 2 do
        if places[i] == member then
          table.remove(places, i)
          table.remove(places, i)
          break
        end
      end
    end
    hold(owner, capital, ttl)
    if capital == 'R' then
      advance() -- those behind who read
    end
    local first, last = 0, 0
    if size > 0 then
      first, last = take(size) -- the newest of this step, as in every reply
    end
    return {1, first, last, waiting() and 1 or 0, 0}
  end
  local left = remaining()
  if not left then
    return conflict('in use as something without an expiry')
  end
  local holder = writer or readers[1] or ''
  local trace = traced and trace_of(holder) or nil
  if held or not waits then
    return {3, left, (#places - at + 1) / 2, newest or newest_token(), holder, 0, trace}
  end
  local rank = join(owner, form, ttl, size, age, member, score)
  local heard = want(owner, ask)
  -- Without shards the inbox is on the connection that the script came by.
  local deaf = publish == 'SPUBLISH' and form == capital and not listens(owner)
  return {deaf and 6 or 2, left, rank, newest or newest_token(), holder, heard, trace}
end

-- force.lua
-- Takes the key from its holders, whoever they are, tells them, and passes it on.
--
-- KEYS[1]  lock     as in prelude.lua
-- KEYS[2]  queue    as in prelude.lua
-- KEYS[3]  counter  as in prelude.lua
--
-- Returns  {5, count}  done: how many holders it was taken from
--          error KIND  not a lock, nothing was changed
-- Time     the server's
-- Retry    may take the key from the next holder too: send it once
-- functions.lua
load()
if layout == 'other' or layout and redis.call('PTTL', lock) == -1 then -- a lock has an expiry
  return conflict('in use as something else')
end
local holders = writer and {writer} or readers
if #holders > 0 then
  local keys = {lock}
  for i = 1, #readers do
    keys[#keys + 1] = deadline_key(readers[i])
  end
  for from = 1, #keys, 1000 do
    redis.call('DEL', unpack(keys, from, math.min(from + 999, #keys)))
  end
  redis.pcall('DEL', traces())
  for i = 1, #holders do
    tell(holders[i], 'changed ' .. holders[i])
  end
end
layout, writer, readers, deadlines = nil, nil, {}, {}
look(false)
advance()
return {5, #holders}

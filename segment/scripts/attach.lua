-- Tells which epoch of the stock is in use.
--
-- KEYS[1]  meta
--
-- Returns  {set, loading}  '' where there is none
-- Retry    safe
local found = redis.call('HMGET', KEYS[1], 'set', 'loading')
return {found[1] or '', found[2] or ''}

local Cache = {}
Cache.__index = Cache

function Cache.new(limit)
  return setmetatable({ rows = {}, limit = limit or 10 }, Cache)
end

function Cache:get(key, make)
  local row = self.rows[key]
  if row == nil then
    row = make(key)
    self.rows[key] = row
  end
  for name, value in pairs(self.rows) do
    print(string.format("%s: %s's", name, tostring(value)))
  end
  return row
end

return Cache

-- The server's status, as :SpdStatus and :checkhealth show it.

local server = require("spd_lsp.server")

local M = {}

local function percent(share)
  return ("%d %%"):format(math.floor(100 * share + 0.5))
end

--- Return the server's status record as lines of text.
function M.describe(status)
  local lines = { ("%s (%s)"):format(status.message, status.kind) }
  local function add(text, ...)
    lines[#lines + 1] = text:format(...)
  end
  if type(status.indexing) == "table" then
    add("indexing %s: %s", status.indexing.folder, percent(status.indexing.share))
  end
  if type(status.model) == "string" and status.model ~= "" then
    add("model: %s", status.model)
    if status.model == "starter" then
      add("a larger model completes more lines: see :SpdModel")
    end
  end
  if type(status.tables) == "table" and #status.tables > 0 then
    add("n-grams: %s", table.concat(status.tables, ", "))
  end
  if (status.lastPasses or 0) > 0 then
    add("last completion: %d passes, %d ms", status.lastPasses, status.lastMilliseconds)
  elseif status.lastMilliseconds > 0 then -- the user typed along with it
    add("last completion: no pass (the one before: %d ms)", status.lastMilliseconds)
  end
  if (status.snoozing or 0) > 0 then
    add("snoozing for %d s", status.snoozing)
  end
  if status.indexed == false then
    local why = status.notIndexedReason
    add("this folder is not indexed: %s", why ~= nil and why ~= "" and why or "its own names are unknown")
  end
  if type(status.documentReason) == "string" and status.documentReason ~= "" then
    add("no completions in this file: %s", status.documentReason)
  elseif status.reason ~= "" then
    add("why the last completion was empty: %s", status.reason)
  end
  return lines
end

--- Request a client's status, by default with that of the current buffer; `show` is called with it, or with nil and an error.
function M.request(client, show, params)
  params = params or { textDocument = { uri = vim.uri_from_bufnr(0) } }
  server.request(client, "spd-lsp/status", params, function(error, status)
    show(status, error and error.message)
  end)
end

return M

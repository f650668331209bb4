-- The server's process: finding it, restarting it after a crash, and requests to it.

local M = {}

local FIRST_DELAY, LONGEST_DELAY = 1000, 60000 -- milliseconds before a restart
local told, delay, restarted_at = {}, FIRST_DELAY, nil

--- Show a message, once.
local function tell(text, level)
  if not told[text] then
    told[text] = true
    vim.schedule(function() -- in an autocommand an error would show a stack trace
      vim.notify("spd-lsp: " .. text, level)
    end)
  end
end

--- Return whether a command's program is installed; if not, tell the user.
function M.is_installed(cmd)
  if type(cmd) ~= "table" or vim.fn.executable(cmd[1]) == 1 then
    return true
  end
  tell(
    ("cannot find `%s`. Install spd-lsp, or give its full path: "):format(cmd[1])
      .. 'vim.lsp.config("spd_lsp", { cmd = { "/path/to/spd-lsp", "serve" } }). More: :help spd-lsp-install',
    vim.log.levels.ERROR
  )
  return false
end

--- Return the server's program: on the PATH, or where the README installs it.
function M.program(name)
  local readme = vim.fn.expand("~/.venvs/spd-lsp/bin/" .. name)
  return vim.fn.executable(name) == 0 and vim.fn.executable(readme) == 1 and readme or name
end

local function is_enabled()
  return vim.lsp.is_enabled == nil or vim.lsp.is_enabled("spd_lsp")
end

--- Tell the server of a buffer where the cursor is: once it rests, the model reads the code around it.
function M.send_cursor(buffer)
  local client = M.clients()[1]
  if client and buffer == vim.api.nvim_get_current_buf() and vim.lsp.buf_is_attached(buffer, client.id) then
    client:notify("spd-lsp/cursor", vim.lsp.util.make_position_params(0, client.offset_encoding))
  end
end

--- Report cursor moves to the server. When a file is opened and the server is not installed, tell the user: Neovim
--- 0.11 and later only log it.
function M.watch()
  local group = vim.api.nvim_create_augroup("spd_lsp", {})
  vim.api.nvim_create_autocmd({ "LspAttach", "BufEnter", "CursorMoved" }, {
    group = group,
    callback = function(event)
      M.send_cursor(event.buf)
    end,
  })
  local function check(filetype)
    local config = is_enabled() and vim.lsp.config.spd_lsp
    if config and vim.tbl_contains(config.filetypes or {}, filetype) then
      M.is_installed(config.cmd)
    end
  end
  vim.api.nvim_create_autocmd("FileType", {
    group = group,
    callback = function(event)
      check(event.match)
    end,
  })
  vim.schedule(function() -- plugin managers may load this after a file was opened
    for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
      check(vim.bo[buffer].filetype)
    end
  end)
end

--- Attach the server to all buffers again; replaced by setup() before Neovim 0.11.
function M.attach_all()
  vim.lsp.enable("spd_lsp")
end

--- Restart the server after a crash, each time after twice the pause, without giving up.
function M.on_exit(code, signal)
  vim.schedule(function()
    if vim.v.exiting ~= vim.NIL or not is_enabled() or (code == 0 and signal == 0) then
      return
    end
    local now = vim.loop.now()
    local is_repeated = restarted_at and now - restarted_at < LONGEST_DELAY
    delay = is_repeated and math.min(2 * delay, LONGEST_DELAY) or FIRST_DELAY
    restarted_at = now + delay
    tell("the server ended unexpectedly; it is started again. :checkhealth spd_lsp may say why", vim.log.levels.WARN)
    vim.defer_fn(M.attach_all, delay)
  end)
end

--- Return the running servers, the current buffer's first.
function M.clients()
  local get = vim.lsp.get_clients or vim.lsp.get_active_clients
  local found = {}
  for _, client in ipairs(get({ name = "spd_lsp" })) do
    if client.name == "spd_lsp" then -- Neovim 0.7 does not filter
      local is_here = vim.lsp.buf_is_attached(vim.api.nvim_get_current_buf(), client.id)
      table.insert(found, is_here and 1 or #found + 1, client)
    end
  end
  return found
end

--- Send a request to a client.
function M.request(client, method, params, handler)
  if vim.fn.has("nvim-0.11") == 1 then
    return client:request(method, params, handler)
  end
  return client.request(method, params, handler)
end

return M

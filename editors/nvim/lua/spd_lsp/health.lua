-- :checkhealth spd_lsp

local server = require("spd_lsp.server")
local status = require("spd_lsp.status")

local health = vim.health or require("health")
local start = health.start or health.report_start
local ok = health.ok or health.report_ok
local info = health.info or health.report_info
local warn = health.warn or health.report_warn
local fail = health.error or health.report_error

local TIMEOUT = 5000 -- milliseconds

local function check_neovim()
  if vim.fn.has("nvim-0.12") == 1 then
    ok("Neovim has ghost text and menus of several lines")
  elseif vim.fn.has("nvim-0.11") == 1 then
    info("Neovim 0.11 has menus; ghost text needs 0.12")
  else
    info("Neovim before 0.11 has menus of single lines; ghost text needs 0.12")
  end
end

local function command()
  local config = vim.fn.has("nvim-0.11") == 1 and vim.lsp.config.spd_lsp
  local client = server.clients()[1]
  return client and client.config.cmd or config and config.cmd or { "spd-lsp" }
end

local function check_program()
  local cmd = command()
  if type(cmd) ~= "table" then
    return info("the server is started by a function of yours")
  end
  local path = vim.fn.exepath(cmd[1])
  if path == "" then
    return fail(("cannot find `%s`"):format(cmd[1]), { "install spd-lsp: `:help spd-lsp-install`" })
  end
  ok(("the server's program is %s"):format(path))
  info(("to check the installation, the model and the tables, run: %s doctor"):format(path))
end

local function check_client(client)
  local record, problem
  status.request(client, function(...)
    record, problem = ...
  end, vim.empty_dict()) -- the current buffer is the report's own
  vim.wait(TIMEOUT, function()
    return record ~= nil or problem ~= nil
  end, 20)
  if not record then
    return fail("the server does not answer: " .. (problem or "no reply in 5 s"))
  end
  local say = record.kind == "error" and fail or record.kind == "loading" and warn or ok
  for _, line in ipairs(status.describe(record)) do
    say(line)
    say = info
  end
end

local function check()
  start("spd-lsp: Neovim")
  check_neovim()
  start("spd-lsp: program")
  check_program()
  start("spd-lsp: server")
  local clients = server.clients()
  if #clients == 0 then
    warn("no server is running", { 'vim.lsp.enable("spd_lsp")', "open a file of a language that it completes" })
  end
  for _, client in ipairs(clients) do
    check_client(client)
  end
end

return { check = check }

-- Choosing a model: those on the server's machine and those that suit it, downloaded and tested before use.

local server = require("spd_lsp.server")

local M = {}

-- Run `spd-lsp models` with arguments; `each` is called with each line, `done` with all of them, or nil and the reason.
local function run(program, arguments, each, done)
  local lines, errors = { "" }, {}
  local command = vim.list_extend(vim.list_extend(vim.deepcopy(program), { "models" }), arguments)
  vim.fn.jobstart(command, {
    cwd = vim.fn.expand("~"),
    on_stdout = function(_, data)
      lines[#lines] = lines[#lines] .. data[1]
      for index = 2, #data do
        each(lines[#lines])
        table.insert(lines, data[index])
      end
    end,
    on_stderr = function(_, data)
      vim.list_extend(errors, data)
    end,
    on_exit = function(_, code)
      local reason = table.concat(errors, "\n")
      reason = vim.trim(reason:match("Error: (.*)") or reason)
      done(code == 0 and lines or nil, reason ~= "" and reason or ("`spd-lsp models` ended with status " .. code))
    end,
  })
end

-- Use a model until Neovim ends.
local function use(client, model, notify)
  local options = vim.tbl_extend("force", client.config.init_options or {}, { model = model })
  client.config.init_options = options
  if vim.fn.has("nvim-0.11") == 1 then
    vim.lsp.config("spd_lsp", { init_options = options }) -- for servers that start later
    client:notify("spd-lsp/options", options)
  else
    client.notify("spd-lsp/options", options)
  end
  notify(('completing with %s. To keep it: init_options = { model = "%s" }'):format(model, model))
end

local function get(client, program, name, notify)
  local model
  run(program, { "get", "--json", name }, function(line)
    local told = line ~= "" and vim.fn.json_decode(line) or {}
    model = told.model or model
    if told.status then
      local text = "spd-lsp: " .. told.status
      vim.api.nvim_echo({ { text:sub(1, vim.v.echospace) } }, false, {}) -- a longer one would ask for Enter
    end
  end, function(lines, reason)
    if lines and model then
      use(client, model, notify)
    else
      notify(reason, vim.log.levels.ERROR)
    end
  end)
end

local function describe(model)
  local kind = model.path and "here" or ("to be downloaded, " .. model.licence)
  local size = model.bytes and (" %.2f GB"):format(model.bytes / 1e9) or ""
  return ("%s (%s%s)"):format(model.name, kind, size)
end

--- List the models, download the chosen one if necessary, and use it. `name` chooses without a list.
function M.choose(client, name, notify)
  local command = client.config.cmd
  if type(command) ~= "table" or command[#command] ~= "serve" then
    return notify("this server has its own model", vim.log.levels.ERROR)
  end
  local program = vim.list_slice(command, 1, #command - 1)
  if name ~= "" then
    return get(client, program, name, notify)
  end
  run(program, { "--json" }, function() end, function(lines, reason)
    if not lines then
      return notify(reason, vim.log.levels.ERROR)
    end
    local models = vim.list_extend({ { name = "starter", path = "" } }, vim.fn.json_decode(table.concat(lines, "\n")))
    vim.ui.select(models, { prompt = "spd-lsp model", format_item = describe }, function(model)
      if model then
        get(client, program, model.name, notify)
      end
    end)
  end)
end

return M

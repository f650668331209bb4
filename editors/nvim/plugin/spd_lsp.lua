-- The commands :SpdStatus, :SpdDrafts, :SpdModel, :SpdSnooze and :SpdBuild; all work on the server of the current buffer.

if vim.g.loaded_spd_lsp then
  return
end
vim.g.loaded_spd_lsp = true

local function notify(text, level)
  vim.schedule(function()
    vim.notify("spd-lsp: " .. text, level or vim.log.levels.INFO)
  end)
end

local function first_client()
  local client = require("spd_lsp.server").clients()[1]
  if not client then
    notify("no server is running; see :checkhealth spd_lsp", vim.log.levels.ERROR)
  end
  return client
end

vim.api.nvim_create_user_command("SpdStatus", function()
  local client = first_client()
  if client then
    local status = require("spd_lsp.status")
    status.request(client, function(record, problem)
      notify(record and table.concat(status.describe(record), "\n") or problem, not record and vim.log.levels.ERROR)
    end)
  end
end, { desc = "Show what spd-lsp does, and why nothing is offered" })

vim.api.nvim_create_user_command("SpdDrafts", function()
  local client = first_client()
  if client then
    require("spd_lsp.drafts").show(client, notify)
  end
end, { desc = "List all drafts of spd-lsp at the cursor, and insert one" })

vim.api.nvim_create_user_command("SpdModel", function(command)
  local client = first_client()
  if client then
    require("spd_lsp.models").choose(client, command.args, notify)
  end
end, { nargs = "?", complete = "file", desc = "Choose the model of spd-lsp, fetched if necessary" })

vim.api.nvim_create_user_command("SpdSnooze", function()
  local client = first_client()
  if client then
    require("spd_lsp.server").request(client, "spd-lsp/snooze", vim.empty_dict(), function(problem, seconds)
      notify(problem and problem.message or seconds > 0 and "snoozing for 5 minutes" or "offering completions again")
    end)
  end
end, { desc = "Have spd-lsp offer nothing while you type for 5 minutes, or again" })

vim.api.nvim_create_user_command("SpdBuild", function(command)
  local client = first_client()
  if client then
    local folder = command.args ~= "" and command.args or client.config.root_dir or vim.fn.getcwd()
    local uri = vim.uri_from_fname(vim.fn.fnamemodify(folder, ":p"):gsub("(.)/$", "%1"))
    local params = { command = "spd-lsp.indexFolder", arguments = { uri } }
    require("spd_lsp.server").request(client, "workspace/executeCommand", params, function(problem)
      if problem then
        notify(problem.message, vim.log.levels.ERROR)
      end
    end)
  end
end, { nargs = "?", complete = "dir", desc = "Count the n-grams of a folder (default: the project's)" })

-- A list of all drafts at the cursor; the chosen one is inserted.

local server = require("spd_lsp.server")

local M = {}

local function choose(client, notify, leave)
  local buffer = vim.api.nvim_get_current_buf()
  local row, column = unpack(vim.api.nvim_win_get_cursor(0))
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  server.request(client, "spd-lsp/drafts", params, function(problem, drafts)
    if problem or #drafts == 0 then
      leave()
      return notify(problem and problem.message or "no draft; :SpdStatus says why")
    end
    vim.ui.select(drafts, {
      prompt = "spd-lsp drafts",
      format_item = function(draft)
        return ("%s  (%s)"):format(vim.trim(draft.label):gsub("\n", " ⏎ "), draft.details)
      end,
    }, function(draft)
      if not draft then
        leave()
      elseif vim.api.nvim_get_current_buf() == buffer then
        require("spd_lsp.ghost_text").insert(draft.text, row, column)
      end
    end)
  end)
end

--- List the drafts at the cursor; in normal mode on the last character of a line, those after it. If none is chosen,
--- mode and cursor are restored.
function M.show(client, notify)
  local leave = function() end
  if vim.fn.mode() == "n" then
    local window, place = vim.api.nvim_get_current_win(), vim.api.nvim_win_get_cursor(0)
    leave = function()
      local function go_back()
        pcall(vim.api.nvim_win_set_cursor, window, place)
      end
      -- Leaving INSERT moves the cursor, with a delay.
      vim.api.nvim_create_autocmd("InsertLeave", { once = true, callback = vim.schedule_wrap(go_back) })
      vim.cmd("stopinsert")
    end
    vim.cmd(vim.fn.col(".") >= vim.fn.col("$") - 1 and "startinsert!" or "startinsert")
  end
  vim.schedule(function()
    choose(client, notify, leave)
  end)
end

return M

-- Ghost text in Neovim 0.12 and later: accepting a draft or a word of it, and showing the next one.

local M = {}

M.keys = { accept = "<Tab>", accept_word = "<M-Right>", next = "<M-]>", previous = "<M-[>" }

local WORD = { "^%s*[%w_]+", "^%s*[^%w_%s]+" }

-- Return the rest of a draft that is not typed yet, and where the draft begins; nil if other text was typed.
local function remaining(item)
  local row, column = unpack(vim.api.nvim_win_get_cursor(0))
  local line = vim.api.nvim_get_current_line()
  local start_row, start_column = row - 1, column
  if item.range then
    start_row, start_column = item.range:to_extmark()
  end
  local typed = line:sub(start_column + 1, column)
  if start_row == row - 1 and vim.startswith(item.insert_text, typed) then
    return item.insert_text:sub(#typed + 1)
  end
end

--- Insert a text and put the cursor after it.
function M.insert(text, row, column)
  local lines = vim.split(text, "\n")
  vim.api.nvim_buf_set_text(0, row - 1, column, row - 1, column, lines)
  vim.api.nvim_win_set_cursor(0, { row + #lines - 1, (#lines == 1 and column or 0) + #lines[#lines] })
end

-- Insert a part of the visible draft; return whether there is one.
local function accept(part)
  return vim.lsp.inline_completion.get({
    on_accept = function(item)
      local text = type(item.insert_text) == "string" and remaining(item)
      if text and text ~= "" then
        M.insert(part(text), unpack(vim.api.nvim_win_get_cursor(0)))
        if item.command and part(text) == text then -- the server counts what was accepted
          vim.lsp.get_client_by_id(item.client_id):exec_cmd(item.command)
        end
      end
    end,
  })
end

--- Insert the visible draft; return whether there is one.
function M.accept()
  return accept(function(text)
    return text
  end)
end

--- Insert the next word of the visible draft; return whether there is one.
function M.accept_word()
  return accept(function(text)
    return text:match(WORD[1]) or text:match(WORD[2]) or text
  end)
end

local marks = vim.api.nvim_create_namespace("nvim.lsp.inline_completion")

local function is_shown()
  return #vim.api.nvim_buf_get_extmarks(0, marks, 0, -1, { limit = 1 }) > 0
end

-- Show the number of the draft after it, such as (1/3), if there is more than one.
local function show_number()
  vim.lsp.inline_completion.select({ count = 0 })
  for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, marks, 0, -1, { details = true })) do
    local id, row, column, shown = unpack(mark)
    local last = shown.virt_lines and shown.virt_lines[#shown.virt_lines] or shown.virt_text
    if last[#last][1] == " (1/1)" then
      table.remove(last)
      shown.ns_id, shown.id = nil, id
      vim.api.nvim_buf_set_extmark(0, marks, row, column, shown)
    end
  end
end

-- Called before Neovim shows a client's answer.
local function on_answer(event)
  local request, client = event.data.request, vim.lsp.get_client_by_id(event.data.client_id)
  local is_ours = client and client.name == "spd_lsp"
  if is_ours and request.method == "textDocument/inlineCompletion" and request.type == "complete" then
    vim.schedule(function()
      if event.buf == vim.api.nvim_get_current_buf() and is_shown() then
        show_number()
      end
    end)
  end
end

--- Show another draft; return whether there is one.
function M.select(count)
  vim.lsp.inline_completion.select({ count = count })
  return is_shown()
end

local ACTIONS = {
  accept = M.accept,
  accept_word = M.accept_word,
  next = function()
    return M.select(1)
  end,
  previous = function()
    return M.select(-1)
  end,
}

--- Number our drafts, also where the user turned ghost text on without setup().
function M.number()
  local group = vim.api.nvim_create_augroup("spd_lsp_number", {})
  vim.api.nvim_create_autocmd("LspRequest", { group = group, callback = on_answer })
end

--- Show our server's ghost text and map its keys; without ghost text, a key keeps its former effect.
function M.enable(keys)
  for action, key in pairs(vim.tbl_extend("force", M.keys, keys or {})) do
    if key then
      vim.keymap.set("i", key, function()
        return not ACTIONS[action]() and key or nil
      end, { expr = true, desc = "spd-lsp: " .. action:gsub("_", " ") })
    end
  end
  vim.api.nvim_create_autocmd("LspAttach", {
    callback = function(event)
      local client = vim.lsp.get_client_by_id(event.data.client_id)
      if client and client.name == "spd_lsp" then
        vim.lsp.inline_completion.enable(true, { client_id = client.id })
      end
    end,
  })
end

return M

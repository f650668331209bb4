-- spd-lsp for Neovim 0.7 to 0.10: require("spd_lsp").setup({ init_options = { drafts = 5 } })
-- Later versions load ../lsp/spd_lsp.lua on vim.lsp.enable("spd_lsp").

local M = {}

local here = vim.fn.fnamemodify(debug.getinfo(1, "S").source:sub(2), ":p:h:h")

-- The id of a folder's client, which is started if necessary.
local function client_for(root, config, clients)
  local running = clients[root] and vim.lsp.get_client_by_id(clients[root])
  if not running then
    clients[root] = vim.lsp.start_client(vim.tbl_extend("force", config, { root_dir = root }))
  end
  return clients[root]
end

--- Attach spd-lsp to every buffer of its filetypes. `options` override fields of lsp/spd_lsp.lua.
function M.setup(options)
  local config = vim.tbl_extend("force", dofile(here .. "/lsp/spd_lsp.lua"), { name = "spd_lsp" }, options or {})
  local clients = {}
  vim.api.nvim_create_autocmd("FileType", {
    pattern = config.filetypes,
    callback = function(event)
      local path = vim.api.nvim_buf_get_name(event.buf)
      local marker = vim.fn.finddir(".git", vim.fn.fnamemodify(path, ":p:h") .. ";")
      local root = marker ~= "" and vim.fn.fnamemodify(marker, ":p:h:h") or vim.fn.getcwd()
      if vim.lsp.buf_attach_client(event.buf, client_for(root, config, clients)) then
        vim.api.nvim_buf_set_option(event.buf, "omnifunc", "v:lua.vim.lsp.omnifunc")
      end
    end,
  })
end

return M

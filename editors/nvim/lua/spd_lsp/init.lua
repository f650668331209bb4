-- spd-lsp for Neovim 0.7 and later: require("spd_lsp").setup({ init_options = { drafts = 5 } })

local ghost_text = require("spd_lsp.ghost_text")
local server = require("spd_lsp.server")

local M = {}

local here = vim.fn.fnamemodify(debug.getinfo(1, "S").source:sub(2), ":p:h:h:h")

-- Before Neovim 0.11: return the id of a folder's client, starting it if necessary.
local function client_for(root, config, clients)
  local running = clients[root] and vim.lsp.get_client_by_id(clients[root])
  if not running then
    clients[root] = vim.lsp.start_client(vim.tbl_extend("force", config, { root_dir = root }))
  end
  return clients[root]
end

-- Before Neovim 0.11: attach the server to a buffer.
local function attach(buffer, config, clients)
  local path = vim.api.nvim_buf_get_name(buffer)
  local marker = vim.fn.finddir(".git", vim.fn.fnamemodify(path, ":p:h") .. ";")
  local root = marker ~= "" and vim.fn.fnamemodify(marker, ":p:h:h") or vim.fn.getcwd()
  if server.is_installed(config.cmd) and vim.lsp.buf_attach_client(buffer, client_for(root, config, clients)) then
    vim.api.nvim_buf_set_option(buffer, "omnifunc", "v:lua.vim.lsp.omnifunc")
  end
end

-- Before Neovim 0.11: attach the server to every buffer of its filetypes, now and later.
local function enable(config)
  local clients = {}
  config.root_markers = nil
  config.capabilities = nil -- these versions would replace all other capabilities
  vim.api.nvim_create_autocmd("FileType", {
    pattern = config.filetypes,
    callback = function(event)
      attach(event.buf, config, clients)
    end,
  })
  server.attach_all = function()
    for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
      if vim.tbl_contains(config.filetypes, vim.bo[buffer].filetype) then
        attach(buffer, config, clients)
      end
    end
  end
  server.attach_all()
end

--- Start spd-lsp for every buffer of its filetypes. `options` override fields of lsp/spd_lsp.lua;
--- `keys` maps those of the ghost text (Neovim 0.12), or is false.
function M.setup(options)
  options = vim.tbl_extend("force", {}, options or {})
  local keys = options.keys
  options.keys = nil
  if vim.fn.has("nvim-0.12") == 1 and keys ~= false then
    ghost_text.enable(keys)
  end
  if vim.fn.has("nvim-0.11") == 1 then
    vim.lsp.config("spd_lsp", options)
    vim.lsp.enable("spd_lsp")
  else
    enable(vim.tbl_extend("force", dofile(here .. "/lsp/spd_lsp.lua"), { name = "spd_lsp" }, options))
  end
end

return M

-- spd-lsp for Neovim 0.11 and later: vim.lsp.enable("spd_lsp"), with this folder's parent on the runtimepath.
-- Settings: vim.lsp.config("spd_lsp", { init_options = { drafts = 5 } })

local server = require("spd_lsp.server")

if vim.fn.has("nvim-0.11") == 1 then
  server.watch()
end
if vim.fn.has("nvim-0.12") == 1 then
  require("spd_lsp.ghost_text").number()
end

---@type vim.lsp.Config
return {
  cmd = { server.program("spd-lsp"), "serve" },
  cmd_cwd = vim.fn.expand("~"), -- not the open folder, which may contain a program of that name
  filetypes = {
    "python", "javascript", "javascriptreact", "typescript", "typescriptreact", "go", "rust", "java",
    "c", "cpp", "cs", "ruby", "php", "sh", "bash", "lua",
  },
  root_markers = { ".git", "pyproject.toml", "package.json", "go.mod", "Cargo.toml" },
  capabilities = { experimental = { spdLonger = true } },
  handlers = {
    -- A whole block is ready whose first line is shown as ghost text: request it as typing would.
    ["spd-lsp/longer"] = function(_, params)
      if vim.uri_from_bufnr(0) == params.uri and vim.api.nvim_get_mode().mode == "i" then
        vim.api.nvim_exec_autocmds("CursorMovedI", { buffer = 0, modeline = false })
      end
    end,
  },
  on_exit = server.on_exit, -- restarts a server that crashed
  get_language_id = function(_, filetype)
    return ({ cs = "csharp", sh = "shellscript", bash = "shellscript" })[filetype] or filetype
  end,
}

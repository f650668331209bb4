-- Makes the repository itself a Neovim plugin, for plugin managers: the plugin is in editors/nvim.

local root = vim.fn.fnamemodify(debug.getinfo(1, "S").source:sub(2), ":p:h:h")
vim.opt.runtimepath:append(root .. "/editors/nvim")
dofile(root .. "/editors/nvim/plugin/spd_lsp.lua")

;;; spd-lsp.el --- spd-lsp in Emacs through eglot  -*- lexical-binding: t; -*-

;; Load this file, then M-x eglot in a source file and C-M-i for completions. Eglot runs one server a buffer:
;; for a mode listed here, spd-lsp takes the place of another one.

(require 'eglot)

(defvar spd-lsp-options '(:drafts 3)
  "The server's settings. Those of a project, in .dir-locals.el, may set few of them.")
(put 'spd-lsp-options 'risky-local-variable t)

(defun spd-lsp-command (&rest _)
  "The command for eglot; the program is never that of the project's folder."
  (let* ((elsewhere (file-remote-p default-directory))
         (default-directory "/")
         (program (if elsewhere "spd-lsp" (executable-find "spd-lsp"))))
    (unless program (user-error "Expected spd-lsp on the PATH, found none; install it"))
    (list program "serve" :initializationOptions spd-lsp-options)))

(add-to-list 'eglot-server-programs
             '((python-mode js-mode typescript-mode go-mode rust-mode java-mode c-mode c++-mode
                ruby-mode php-mode sh-mode lua-mode)
               . spd-lsp-command))

(provide 'spd-lsp)
;;; spd-lsp.el ends here

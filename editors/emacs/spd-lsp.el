;;; spd-lsp.el --- spd-lsp in Emacs through eglot  -*- lexical-binding: t; -*-

;; Load this file, then use M-x eglot in a source file, and C-M-i to complete.  Eglot runs one server per buffer:
;; in the modes below, spd-lsp replaces any other.

(require 'eglot)

(defvar spd-lsp-options '(:drafts 3)
  "The server's settings.  A project's .dir-locals.el may only change a few of them.")
(put 'spd-lsp-options 'risky-local-variable t)

(defun spd-lsp-command (&rest _)
  "The command for eglot, which never runs a program inside the project's folder."
  (let* ((elsewhere (file-remote-p default-directory))
         (default-directory "/")
         (program (if elsewhere "spd-lsp" (executable-find "spd-lsp"))))
    (unless program (user-error "Cannot find spd-lsp on the PATH; install it first"))
    (list program "serve" :initializationOptions spd-lsp-options)))

(add-to-list 'eglot-server-programs
             '((python-mode js-mode typescript-mode go-mode rust-mode java-mode c-mode c++-mode
                ruby-mode php-mode sh-mode lua-mode)
               . spd-lsp-command))

(provide 'spd-lsp)
;;; spd-lsp.el ends here

;;; spd-lsp.el --- spd-lsp in Emacs through eglot  -*- lexical-binding: t; -*-

;; Load this file, then M-x eglot in a source file and C-M-i for completions. Eglot runs one server a buffer:
;; for a mode listed here, spd-lsp takes the place of another one.

(require 'eglot)

(add-to-list 'eglot-server-programs
             '((python-mode js-mode typescript-mode go-mode rust-mode java-mode c-mode c++-mode
                ruby-mode php-mode sh-mode lua-mode)
               . ("spd-lsp" "serve" :initializationOptions (:drafts 3))))

(provide 'spd-lsp)
;;; spd-lsp.el ends here

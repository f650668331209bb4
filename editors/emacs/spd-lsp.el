;;; spd-lsp.el --- Local code completion through eglot or lsp-mode  -*- lexical-binding: t; -*-

;; Version: 0.1.0
;; Package-Requires: ((emacs "25.1"))
;; Keywords: convenience, languages

;;; Commentary:

;; Load this file, then use M-x eglot or M-x lsp in a source file, and C-M-i to complete.  Eglot runs one server per
;; buffer: in the modes below, spd-lsp replaces any other.  In lsp-mode it runs beside others.

;;; Code:

(defvar spd-lsp-options '(:drafts 3)
  "The server's settings, of which a .dir-locals.el may only change a few.")
(put 'spd-lsp-options 'risky-local-variable t)

(defconst spd-lsp-modes
  '(("python" python-mode python-ts-mode)
    ("javascript" js-mode js-ts-mode js2-mode)
    ("typescript" typescript-mode typescript-ts-mode)
    ("typescriptreact" tsx-ts-mode)
    ("go" go-mode go-ts-mode)
    ("rust" rust-mode rust-ts-mode rustic-mode)
    ("java" java-mode java-ts-mode)
    ("c" c-mode c-ts-mode)
    ("cpp" c++-mode c++-ts-mode)
    ("csharp" csharp-mode csharp-ts-mode)
    ("ruby" ruby-mode ruby-ts-mode)
    ("php" php-mode php-ts-mode)
    ("shellscript" sh-mode bash-ts-mode)
    ("lua" lua-mode lua-ts-mode))
  "The language ids that the server knows, each with its major modes.")

(defun spd-lsp-program (&rest _)
  "Return the server's command, never a program inside the project's folder."
  (let* ((elsewhere (file-remote-p default-directory))
         (default-directory "/")
         (program (if elsewhere "spd-lsp" (executable-find "spd-lsp"))))
    (unless program (user-error "Cannot find spd-lsp on the PATH; install it first"))
    (list program "serve")))

(defun spd-lsp-command (&rest _)
  "Return the command for eglot, with the server's settings."
  (append (spd-lsp-program) (list :initializationOptions spd-lsp-options)))

(defvar eglot-server-programs)
(with-eval-after-load 'eglot
  (pcase-dolist (`(,id . ,modes) spd-lsp-modes) ; a server a language: before Emacs 30, Eglot sends one id for all
    (add-to-list 'eglot-server-programs
                 (cons (mapcar (lambda (mode) (list mode :language-id id)) modes) 'spd-lsp-command))))

(declare-function lsp-register-client "lsp-mode")
(declare-function lsp-stdio-connection "lsp-mode")
(declare-function make-lsp-client "lsp-mode")
(defvar lsp-language-id-configuration)
(with-eval-after-load 'lsp-mode
  (pcase-dolist (`(,id . ,modes) spd-lsp-modes)
    (dolist (mode modes)
      (add-to-list 'lsp-language-id-configuration (cons mode id) t)))
  (lsp-register-client
   (make-lsp-client
    :server-id 'spd-lsp
    :add-on? t
    :new-connection (lsp-stdio-connection #'spd-lsp-program)
    :major-modes (apply #'append (mapcar #'cdr spd-lsp-modes))
    :initialization-options (lambda () spd-lsp-options))))

(provide 'spd-lsp)
;;; spd-lsp.el ends here

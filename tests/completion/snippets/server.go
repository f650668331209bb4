package main

import (
	"fmt"
	"net/http"
)

type handler struct {
	hits map[string]int
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.hits[r.URL.Path]++
	if n := h.hits[r.URL.Path]; n > 1000 {
		http.Error(w, "too many", http.StatusTooManyRequests)
		return
	}

	fmt.Fprintf(w, "héllo %s\t%d\n", r.URL.Path, h.hits[r.URL.Path])
}

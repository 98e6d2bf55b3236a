package main

import (
	"net"
	"net/http"
)

// serveOrders starts an order service that answers at once.
func serveOrders() (*http.Server, string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go func() { _ = server.Serve(l) }() // until it is closed
	return server, l.Addr().String(), nil
}

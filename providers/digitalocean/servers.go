package digitalocean

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

const (
	// probeMaxAge lets probes share one check, because checks cost API calls.
	probeMaxAge  = 30 * time.Second
	probeTimeout = 15 * time.Second
	// closeTimeout bounds requests in progress at the end.
	closeTimeout = 2 * time.Second
)

// startServers starts the separate servers that DigitalOcean's own controller offered.
func (c *cloud) startServers(stop <-chan struct{}) {
	if c.config.DebugAddress != "" {
		mux := http.NewServeMux()
		mux.Handle("/healthz", &healthPage{check: c.api.account})
		serve("DEBUG_ADDR", c.config.DebugAddress, mux, stop)
	}
	if c.config.MetricsAddress != "" {
		mux := http.NewServeMux()
		mux.Handle("/metrics", legacyregistry.Handler())
		serve("METRICS_ADDR", c.config.MetricsAddress, mux, stop)
	}
}

// serve serves until stop. An unusable address is only logged.
func serve(option, address string, handler http.Handler, stop <-chan struct{}) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		klog.ErrorS(err, "Cannot listen; choose an address that is free, or unset the option", "option", option, "address", address)
		return
	}
	klog.InfoS("Serving", "option", option, "address", listener.Addr().String())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	rescue.Go("ending the server of "+option, func() {
		<-stop
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = server.Shutdown(ctx) // the end of the process closes the rest
	})
	rescue.Go("the server of "+option, func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.ErrorS(err, "The server ended", "option", option)
		}
	})
}

// healthPage answers 200 while the API is usable, otherwise 500 with the reason. Probes share one check.
type healthPage struct {
	check func(context.Context) error

	mu      sync.Mutex
	checked time.Time
	status  error
}

// ServeHTTP implements http.Handler.
func (h *healthPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.current(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (h *healthPage) current(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.checked.IsZero() && time.Since(h.checked) < probeMaxAge {
		return h.status
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	h.status, h.checked = h.check(ctx), time.Now()
	return h.status
}

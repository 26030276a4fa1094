// Command cloudsim serves a simulated cloud on a loopback port, for the demo, tests and benchmarks. It is never in an image.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// simulator is implemented by all simulated clouds.
type simulator interface {
	http.Handler
	Seed(instances int)
}

// constructor creates a simulator; an empty token accepts any.
type constructor func(token string, activation time.Duration, publishedLimits bool) simulator

// simulators are the linked simulators; each registers itself in its own file.
var simulators = map[string]constructor{}

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	names := slices.Sorted(maps.Keys(simulators))
	fs := flag.NewFlagSet("cloudsim", flag.ContinueOnError)
	standard := "digitalocean"
	if len(names) == 1 {
		standard = names[0] // a slim program
	}
	provider := fs.String("provider", standard, "the cloud to simulate: "+strings.Join(names, ", "))
	address := fs.String("address", "127.0.0.1:0", "loopback address and port to listen on; port 0 takes a free one")
	urlFile := fs.String("url-file", "", "file to write the URL to once the port is open")
	token := fs.String("token", "", "the only credential that is accepted; empty accepts any")
	instances := fs.Int("instances", 0, "number of instances at the start, named node-1, node-2 and so on")
	certificate := fs.String("tls-certificate", "", "file with a certificate, by which HTTPS is served; with --tls-key")
	key := fs.String("tls-key", "", "file with the key of the certificate")
	latency := fs.Duration("latency", 0, "time that every call takes")
	activation := fs.Duration("activation", 2*time.Second, "time that a new load balancer takes to become active")
	published := fs.Bool("published-limits", false, "switch on the cloud's published rate limits")
	perMinute := fs.Int("per-minute", 0, "rate limit: calls a minute; 0 means none")
	perHour := fs.Int("per-hour", 0, "rate limit: calls an hour; 0 means none")
	var faults []map[string]any
	fs.Func("fault", "fault such as kind=status,status=500,operation=GET,for=60s; may be repeated", func(text string) error {
		f, err := parseFault(text)
		faults = append(faults, f)
		return err
	})
	if err := fs.Parse(args); err != nil {
		return err
	}
	construct, ok := simulators[*provider]
	if !ok {
		return fmt.Errorf("unknown --provider %q; there are %s", *provider, strings.Join(names, ", "))
	}
	sim := construct(*token, *activation, *published)
	sim.Seed(*instances)
	config := map[string]any{"latency": latency.String()}
	if *perMinute > 0 || *perHour > 0 {
		config["perMinute"], config["perHour"] = *perMinute, *perHour
	}
	if err := admin(ctx, sim, "config", config); err != nil {
		return err
	}
	for _, f := range faults {
		if err := admin(ctx, sim, "faults", f); err != nil {
			return err
		}
	}
	return serve(ctx, sim, *provider, *address, *urlFile, keyPair{*certificate, *key})
}

// parseFault reads the fields of a fault from a comma-separated list.
func parseFault(text string) (map[string]any, error) {
	fault := map[string]any{}
	for field := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(field, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not of the form key=value", field)
		}
		fault[key] = value
		if n, err := strconv.Atoi(value); err == nil {
			fault[key] = n
		} else if b, err := strconv.ParseBool(value); err == nil {
			fault[key] = b
		}
	}
	return fault, nil
}

// admin calls the simulator's admin path in the same process.
func admin(ctx context.Context, sim simulator, path string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding the %s: %w", path, err)
	}
	answer := httptest.NewRecorder()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "/_sim/"+path, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("setting the %s: %w", path, err)
	}
	sim.ServeHTTP(answer, request)
	if answer.Code >= http.StatusBadRequest {
		return fmt.Errorf("setting the %s: %s", path, strings.TrimSpace(answer.Body.String()))
	}
	return nil
}

// keyPair names the files for HTTPS; without them HTTP is used.
type keyPair struct{ certificate, key string }

func serve(ctx context.Context, sim http.Handler, provider, address, urlFile string, pair keyPair) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--address: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--address %s: a simulated cloud listens on loopback only", address)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	url := "http://" + l.Addr().String()
	if pair.certificate != "" {
		url = "https://" + l.Addr().String()
	}
	fmt.Printf("%s is simulated at %s; admin path %s/_sim/\n", provider, url, url)
	if urlFile != "" {
		if err := os.WriteFile(urlFile, []byte(url), 0o600); err != nil {
			return fmt.Errorf("writing the URL: %w", err)
		}
	}
	return serveOn(ctx, l, sim, pair)
}

// serveOn serves until the context ends.
func serveOn(ctx context.Context, l net.Listener, sim http.Handler, pair keyPair) (err error) {
	server := &http.Server{Handler: sim, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close() // open connections may break
	}()
	if pair.certificate == "" {
		err = server.Serve(l)
	} else {
		err = server.ServeTLS(l, pair.certificate, pair.key)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

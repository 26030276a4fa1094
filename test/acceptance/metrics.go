package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sample is one value of a metric.
type sample struct {
	labels map[string]string
	value  float64
}

// metrics holds the program's metrics at one time, by name.
type metrics map[string][]sample

var label = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)

// parseMetrics reads the text format.
func parseMetrics(text string) metrics {
	all := metrics{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		space := strings.LastIndexByte(line, ' ')
		if space < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		value, err := strconv.ParseFloat(line[space+1:], 64)
		if err != nil {
			continue
		}
		name, rest, _ := strings.Cut(line[:space], "{")
		one := sample{labels: map[string]string{}, value: value}
		for _, m := range label.FindAllStringSubmatch(rest, -1) {
			one.labels[m[1]] = m[2]
		}
		all[name] = append(all[name], one)
	}
	return all
}

// sum adds up the samples of a metric that have a label; an empty name of the label takes all.
func (m metrics) sum(name, label, value string) float64 {
	total := 0.0
	for _, s := range m[name] {
		if label == "" || s.labels[label] == value {
			total += s.value
		}
	}
	return total
}

// counts are calls to the cloud by operation.
type counts map[string]int

const requests = "anyccm_cloud_api_requests_total"

// tally are the calls of one process so far.
type tally struct {
	// began is when the process began, in seconds since 1970.
	began float64
	calls counts
}

func (m metrics) tally() tally {
	t := tally{began: m.sum("process_start_time_seconds", "", ""), calls: counts{}}
	for _, s := range m[requests] {
		t.calls[s.labels["operation"]] += int(s.value)
	}
	return t
}

// since are the calls that were made after others were counted; a program that was started in between counts from 0.
func (t *tally) since(before *tally) counts {
	if t.began != before.began {
		return t.calls
	}
	all := counts{}
	for operation, n := range t.calls {
		if more := n - before.calls[operation]; more > 0 {
			all[operation] = more
		}
	}
	return all
}

func (c counts) total() int {
	n := 0
	for _, one := range c {
		n += one
	}
	return n
}

// writes are the calls that may have changed something.
func (c counts) writes() counts {
	all := counts{}
	for operation, n := range c {
		if !onlyReads(operation) {
			all[operation] = n
		}
	}
	return all
}

func (c counts) String() string {
	var parts []string
	for _, operation := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, fmt.Sprintf("%d × %s", c[operation], operation))
	}
	return strings.Join(parts, ", ")
}

// reading are the operations that surely change nothing in a cloud, as HTTP, RPC, SOAP, actions of vCenter's REST and commands name them,
// logins, and the views that a client of SOAP makes for itself. Whatever is not among them counts as a write, so that a new kind of
// operation shows up instead of being overlooked.
var reading = regexp.MustCompile(`^(?:GET|HEAD|OPTIONS)(?:_|$)|` +
	`(?:^|_)(?:Describe|List|Get|Retrieve|Query|Find|Continue|Wait|Read|Search|AssumeRole|Login|Logout|CurrentTime|CreateContainerView|` +
	`CreateFilter|CreateCollectorFor|Destroy(?:View|PropertyFilter|PropertyCollector|Collector)$)|` +
	`^POST_/.*_list-[a-z-]+$|` +
	`^(?:list|query)[A-Z]|` +
	`(?i)^POST_.*(?:token|session|login|oauth|identity)`)

func onlyReads(operation string) bool { return reading.MatchString(operation) }

// scraper reads the program's metrics with a token that is allowed nothing else.
type scraper struct {
	url, token string
	client     *http.Client
}

func newScraper() *scraper {
	// The program signs its certificate itself. What is sent there is a token that may read metrics, and no more.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} //nolint:gosec // see above
	return &scraper{client: &http.Client{Transport: transport, Timeout: 15 * time.Second}}
}

func (s *scraper) get(ctx context.Context, path string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return "", fmt.Errorf("asking the program: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	answer, err := s.client.Do(r)
	if err != nil {
		return "", fmt.Errorf("asking the program: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers with HTTP %d", path, answer.StatusCode)
	}
	return string(text), err
}

func (s *scraper) metrics(ctx context.Context) (metrics, error) {
	if s.url == "" {
		return nil, errors.New("the program's metrics are not reached")
	}
	text, err := s.get(ctx, "/metrics")
	return parseMetrics(text), err
}

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`)

// forward opens a port of this machine that leads to a pod's, and returns its address and what closes it.
func forward(ctx context.Context, kubeconfig, namespace, pod string, port int) (url string, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, "kubectl", "--kubeconfig", kubeconfig, "-n", namespace,
		"port-forward", "--address=127.0.0.1", "pod/"+pod, ":"+strconv.Itoa(port))
	stop = func() {
		cancel()
		_ = cmd.Wait() // it is ended, which is all that is wanted
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return "", nil, fmt.Errorf("forwarding a port of pod %s, which -metrics-url makes unnecessary: %w", pod, err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if m := forwarding.FindStringSubmatch(line); m != nil {
		return "https://" + m[1], stop, nil
	}
	stop()
	return "", nil, fmt.Errorf("kubectl port-forward of pod %s says %q (%w); give -metrics-url", pod, strings.TrimSpace(line), err)
}

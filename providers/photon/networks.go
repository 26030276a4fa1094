package photon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/restapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
)

const (
	firstPoll = 200 * time.Millisecond
	maxPoll   = 2 * time.Second
	// maxTasks limits concurrent tasks.
	maxTasks = 16
	// taskPatience limits the wait for a task.
	taskPatience = 30 * time.Second
	// networksMaxAge is the maximum age of a machine's networks, missingMaxAge if they have no address. Each query creates a task, which
	// the server records.
	networksMaxAge = 10 * time.Minute
	missingMaxAge  = 15 * time.Second

	stateCompleted, stateError = "COMPLETED", "ERROR"
)

// task is work of the server.
type task struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Steps []struct {
		State  string      `json:"state"`
		Errors []errorBody `json:"errors"`
	} `json:"steps"`
	// Result is normally an object with connections.
	Result json.RawMessage `json:"resourceProperties"`
}

// isFinished reports whether a task has ended.
func (t task) isFinished() bool { return t.State == stateCompleted || t.State == stateError }

// failure returns the message of the failed step.
func (t task) failure() string {
	for _, s := range t.Steps {
		if s.State == stateError && len(s.Errors) > 0 {
			return restapi.Text(s.Errors[0].Code, s.Errors[0].Message)
		}
	}
	return "the task failed without a message"
}

// connection is a network interface of a virtual machine.
type connection struct {
	MAC string `json:"macAddress"`
	IP  string `json:"ipAddress"`
}

// networks are a virtual machine's, from the result of a task.
type networks struct {
	ID          string
	Connections []connection
}

// ips returns the addresses; unknown ones are null, empty or a hyphen.
func (n networks) ips() []netip.Addr {
	var all []netip.Addr
	for _, c := range n.Connections {
		if ip, err := netip.ParseAddr(c.IP); err == nil && ip.Is4() && !ip.IsUnspecified() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			all = append(all, ip)
		}
	}
	return all
}

func (n networks) hasAddress(text string) bool {
	return slices.ContainsFunc(n.ips(), func(ip netip.Addr) bool { return ip.String() == text })
}

func (a *api) task(ctx context.Context, id string) (t task, err error) {
	err = a.get(ctx, "reading a task", "/tasks/"+url.PathEscape(id), &t)
	return t, err
}

// requestNetworks creates the task that reads the networks of a virtual machine.
func (a *api) requestNetworks(ctx context.Context, what, id string, t *task) error {
	path := "/vms/" + url.PathEscape(id)
	if a.oldest.Load() {
		return a.get(ctx, what, path+"/networks", t)
	}
	err := a.get(ctx, what, path+"/subnets", t)
	e, ok := errors.AsType[*cloudapi.Error](err)
	if !ok || e.Status != http.StatusNotFound || codeOf(err) == codeVMNotFound {
		return err
	}
	if d, _ := a.dialect(ctx); d.name != dialectOld || a.get(ctx, what, path+"/networks", t) != nil {
		return err
	}
	a.oldest.Store(true)
	return nil
}

// networks reads a virtual machine's networks by a task.
func (a *api) networks(ctx context.Context, id string) (networks, error) {
	what := "reading the networks of virtual machine " + id
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		return networks{}, cloudapi.Unclear(what, "too many tasks are under way; it is tried again")
	}
	var t task
	if err := a.requestNetworks(ctx, what, id, &t); err != nil {
		return networks{}, err
	}
	if !t.isFinished() {
		if t.ID == "" {
			return networks{}, cloudapi.Unclear(what, "the answer is not that of the API; %s", checkAddress)
		}
		limited, cancel := context.WithTimeout(ctx, taskPatience)
		defer cancel()
		ended, err := a.tasks.Until(limited, t.ID, what, task.isFinished)
		if err != nil {
			return networks{}, cloudapi.Unclear(what, "the task %s has not ended: %s; it is tried again", t.ID, cloudapi.NotAbsence(err))
		}
		t = ended
	}
	if t.State == stateError {
		return networks{}, cloudapi.Unclear(what, "%s", t.failure())
	}
	var result struct {
		Connections []connection `json:"networkConnections"`
	}
	_ = json.Unmarshal(t.Result, &result) // other content has no addresses
	return networks{id, result.Connections}, nil
}

// networksOf returns the cached networks of a virtual machine.
func (i *instances) networksOf(ctx context.Context, id string) (n networks, err error) {
	for _, age := range []time.Duration{networksMaxAge, missingMaxAge} {
		if n, err = i.networks.Get(ctx, id, inventory.Query{MaxAge: age, MaxMissAge: missingMaxAge}); err != nil || len(n.ips()) > 0 {
			break
		}
	}
	return n, cloudapi.NotAbsence(err)
}

// idsWithAddress returns the IDs of the virtual machines with an address. It fails if any machine's networks cannot be read, because that
// may be the one.
func (i *instances) idsWithAddress(ctx context.Context, ip netip.Addr, all []vm) ([]string, error) {
	has := make([]bool, len(all))
	questions := make([]func() error, len(all))
	for n, v := range all {
		questions[n] = func() error {
			found, err := i.networksOf(ctx, v.ID)
			has[n] = slices.Contains(found.ips(), ip)
			return err
		}
	}
	if err := waiting.Together(questions...); err != nil {
		return nil, fmt.Errorf("nothing is known of address %s: %w", ip, err)
	}
	var ids []string
	for n, v := range all {
		if has[n] {
			ids = append(ids, v.ID)
		}
	}
	return ids, nil
}

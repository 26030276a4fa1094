package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inCluster takes the place of a simulated cloud for a provider without a cloud outside of the cluster: what ConfigMaps record is what is
// held, and requests for ConfigMaps are the calls.
type inCluster struct {
	cluster *Cluster
	// options are those of the example of the installation.
	options map[string]string

	mu sync.Mutex
	// past is how many requests there were when the counts were set to zero.
	past int
}

// uids are those of the Services that ConfigMaps record.
var uids = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// holdings are the Services that ConfigMaps record: by their names, and by their UIDs where they are gone.
func (i *inCluster) holdings(ctx context.Context) ([]string, error) {
	configMaps, err := i.cluster.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing ConfigMaps: %w", err)
	}
	services, err := i.cluster.Kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing Services: %w", err)
	}
	names := map[string]string{}
	for _, s := range services.Items {
		names[string(s.UID)] = s.Namespace + "/" + s.Name
	}
	held := []string{}
	for _, cm := range configMaps.Items {
		for _, uid := range uids.FindAllString(fmt.Sprint(cm.Annotations, cm.Data), -1) {
			held = append(held, fmt.Sprintf("%s %s", uid, names[uid]))
		}
	}
	slices.Sort(held)
	return slices.Compact(held), nil
}

// requests are those of programs for ConfigMaps. What they watch, and what all programs read at their start, is left out.
func (i *inCluster) requests(ctx context.Context) (all []string, refused []string, err error) {
	logged, err := i.cluster.API.Audit(ctx, account)
	for _, r := range logged {
		path, _, _ := strings.Cut(r.URI, "?")
		if !strings.Contains(path, "/configmaps") || strings.HasSuffix(path, "/extension-apiserver-authentication") ||
			r.Verb == "watch" || r.Verb == "list" {
			continue
		}
		all = append(all, r.Verb)
		if code := r.ResponseStatus.Code; code >= http.StatusBadRequest && code != http.StatusNotFound && code != http.StatusConflict {
			refused = append(refused, fmt.Sprintf("%s %s: %d", r.Verb, r.URI, code))
		}
	}
	return all, refused, err
}

func (i *inCluster) calls(ctx context.Context) (Calls, error) {
	all, refused, err := i.requests(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	c := Calls{ByOperation: map[string]int{}, Refused: refused}
	for _, verb := range all[min(i.past, len(all)):] {
		c.Total++
		c.ByOperation[verb+" configmaps"]++
		if verb == "get" {
			c.Reads++
		} else {
			c.Writes++
		}
	}
	return c, err
}

func (i *inCluster) reset(ctx context.Context) error {
	all, _, err := i.requests(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.past = len(all)
	return err
}

// state returns the cluster's objects in the form of a simulated cloud's state.
func (i *inCluster) state(ctx context.Context, out any) error {
	held, err := i.holdings(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string][]string{"records": held})
	if err != nil {
		return fmt.Errorf("encoding what is held: %w", err)
	}
	return json.Unmarshal(text, out)
}

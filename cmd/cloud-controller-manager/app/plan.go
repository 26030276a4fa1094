package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	yamlnode "go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

const (
	// planTimeout bounds the look at one Service.
	planTimeout = 2 * time.Minute
	// planManager is the field manager of the dry runs.
	planManager = "anyccm-plan"
)

// plan tells what the reconciliation of Services in files would do. It writes nothing.
type plan struct {
	cloudCommand

	clusterName string
	files       manifestFiles
	output      string
}

// plannedService is what the command prints with -o json, one for each Service.
type plannedService struct {
	Service string          `json:"service"`
	Planned []guard.Planned `json:"planned"`
	// Findings are what the events on the Service would say.
	Findings []guard.Finding `json:"findings,omitempty"`
	Error    string          `json:"error,omitempty"`
}

func planCommand(c choice) *cobra.Command {
	p := &plan{cloudCommand: cloudCommand{providers: c.providers, readOnly: true}}
	p.cmd = &cobra.Command{
		Use:     "plan [FILE or folder]...",
		Short:   "Show what would be created, changed and deleted in the cloud for Services in files; nothing is written",
		Example: c.example("plan --cloud-provider=%s --kubeconfig=$HOME/.kube/config service.yaml"),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.run(cmd.Context(), args) },
	}
	fs := p.cmd.Flags()
	p.addFlags()
	fs.StringVar(&p.clusterName, "cluster-name", "kubernetes", "The name of the cluster, as the controllers are given it.")
	p.files.addFlags(p.cmd)
	addOutputFlag(p.cmd, &p.output, humanText)
	c.addFlags(p.cmd)
	return p.cmd
}

func (p *plan) run(ctx context.Context, args []string) error {
	if err := errors.Join(checkOutput(p.output, humanText), p.files.take(args)); err != nil {
		return err
	}
	manifests, err := p.read()
	if err != nil {
		return err
	}
	cloud, client, err := p.open()
	if err != nil {
		return err
	}
	planner, ok := cloud.(guard.Planner)
	if !ok {
		return guard.ErrNoPlan
	}
	known, err := listNodes(ctx, client)
	if err != nil {
		return err
	}
	ctx, nodes := nodecount.With(ctx, known), backendNodes(known)
	all := []plannedService{}
	for _, m := range manifests {
		all = append(all, p.plan(ctx, planner, client, m, nodes))
	}
	if err := p.print(all); err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(s plannedService) bool { return s.Error != "" }) {
		return &printedError{errors.New("not everything could be planned")}
	}
	return nil
}

// read returns the Services of type LoadBalancer in the files.
func (p *plan) read() ([]*v1.Service, error) {
	contents, err := p.files.read(p.cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	var all []*v1.Service
	for _, c := range contents {
		found, err := servicesIn(c.data)
		if err != nil {
			return nil, fmt.Errorf("--filename %s: %w", c.name, err)
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, errors.New("--filename: there is no Service of type LoadBalancer")
	}
	return all, nil
}

// servicesIn returns the Services of type LoadBalancer of one or more documents.
func servicesIn(data []byte) ([]*v1.Service, error) {
	var all []*v1.Service
	decoder := yamlnode.NewDecoder(strings.NewReader(string(data)))
	for {
		var document yamlnode.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("this is neither YAML nor JSON: %w", err)
		}
		for _, object := range objects(&document) {
			kind, serviceType := child(object, "kind"), child(object, "spec", "type")
			if kind == nil || kind.Value != "Service" || serviceType == nil || serviceType.Value != string(v1.ServiceTypeLoadBalancer) {
				continue
			}
			s := &v1.Service{}
			if err := decode(object, s); err != nil {
				return nil, fmt.Errorf("line %d: this is not a valid Service: %w", object.Line, err)
			}
			all = append(all, s)
		}
	}
}

// plan asks the API server what it would make of a manifest, and the cloud what it would take.
func (p *plan) plan(
	ctx context.Context, planner guard.Planner, client kubernetes.Interface, manifest *v1.Service, nodes []*v1.Node,
) plannedService {
	ctx, cancel := context.WithTimeout(ctx, planTimeout)
	defer cancel()
	if manifest.Namespace == "" {
		manifest.Namespace = metav1.NamespaceDefault
	}
	result := plannedService{Service: namespaced(manifest), Planned: []guard.Planned{}}
	service, err := dryRun(ctx, client, manifest)
	if err == nil {
		var planned guard.Plan
		planned, err = planner.PlanLoadBalancer(ctx, p.clusterName, service, nodes)
		result.Planned, result.Findings = append(result.Planned, planned.Changes...), planned.Findings
	}
	if errors.Is(err, cloudprovider.ImplementedElsewhere) {
		err = nil // another controller's
	}
	if err != nil {
		result.Error = err.Error()
	}
	return result
}

// dryRun returns the Service as the API server would store it.
func dryRun(ctx context.Context, client kubernetes.Interface, manifest *v1.Service) (*v1.Service, error) {
	manifest.Status = v1.ServiceStatus{}
	data, err := json.Marshal(manifest)
	if err != nil {
		return nil, fmt.Errorf("encoding the Service: %w", err)
	}
	service, err := client.CoreV1().Services(manifest.Namespace).Patch(ctx, manifest.Name, types.ApplyPatchType, data, metav1.PatchOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: planManager, Force: new(true),
	})
	if err != nil {
		return nil, fmt.Errorf("asking the API server what it would store: %w", err)
	}
	return service, nil
}

func listNodes(ctx context.Context, client kubernetes.Interface) ([]*v1.Node, error) {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	nodes := make([]*v1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	return nodes, nil
}

// backendNodes are the nodes that the service controller would hand over.
func backendNodes(all []*v1.Node) []*v1.Node {
	var nodes []*v1.Node
	for _, n := range all {
		if guard.MayReceive(n) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func (p *plan) print(all []plannedService) error {
	w := p.cmd.OutOrStdout()
	if p.output != humanText {
		return printFor(w, p.output, all)
	}
	for _, s := range all {
		for _, f := range s.Findings {
			fmt.Fprintf(w, "Service %s: %s: %s: %s\n", s.Service, map[bool]string{true: "warning", false: "note"}[f.Warning], f.Reason, f.Message)
		}
		switch {
		case s.Error != "":
			fmt.Fprintf(w, "Service %s: error: %s\n", s.Service, s.Error)
			continue
		case len(s.Planned) == 0:
			fmt.Fprintf(w, "Service %s: nothing to do\n", s.Service)
			continue
		}
		fmt.Fprintf(w, "Service %s:\n", s.Service)
		for _, one := range s.Planned {
			fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %s  %s  %s", one.Action, one.Object, one.Detail), " "))
			for _, f := range one.Fields {
				fmt.Fprintf(w, "    %s\n", fieldText(f))
			}
		}
	}
	return nil
}

// fieldText is a field before and after: ~ for one that changes, + for one that comes, - for one that goes.
func fieldText(f guard.Field) string {
	switch {
	case f.Before == "":
		return fmt.Sprintf("+ %s: %s", f.Name, f.After)
	case f.After == "":
		return fmt.Sprintf("- %s: %s", f.Name, f.Before)
	}
	return fmt.Sprintf("~ %s: %s -> %s", f.Name, f.Before, f.After)
}

// readOnlyTransport lets nothing through to the API server that would change it: reads, dry runs and reviews alone.
type readOnlyTransport struct{ inner http.RoundTripper }

// errReadOnly is the answer to everything else.
var errReadOnly = errors.New("this command changes nothing in the cluster")

// RoundTrip implements http.RoundTripper.
func (t readOnlyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
	if !reads && r.URL.Query().Get("dryRun") != metav1.DryRunAll && !strings.HasSuffix(r.URL.Path, "accessreviews") {
		return nil, errReadOnly
	}
	return t.inner.RoundTrip(r)
}

// readOnly makes clients of a configuration change nothing.
func readOnly(config *restclient.Config) {
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return readOnlyTransport{inner} })
}

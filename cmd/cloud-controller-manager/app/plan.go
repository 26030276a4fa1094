package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	yamlnode "go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// planTimeout limits the plan of one Service.
const planTimeout = 2 * time.Minute

// plan shows what the reconciliation of Services in files would change after they are applied. It writes nothing.
type plan struct {
	cloudCommand

	clusterName      string
	namespace        string
	files            manifestFiles
	applier          applier
	services         serviceSelection
	output           string
	detailedExitCode bool
}

// plannedService is the command's output with -o json for one Service.
type plannedService struct {
	Service string             `json:"service"`
	Planned []contract.Planned `json:"planned"`
	// Left: another controller serves the Service.
	Left bool `json:"left,omitempty"`
	// Findings are the events that the Service would get, and limits of the plan.
	Findings []contract.Finding `json:"findings,omitempty"`
	Error    string             `json:"error,omitempty"`
}

// errChanges sets the exit status for a plan with changes, if requested.
var errChanges = errors.New("there is something to do")

func planCommand(c choice) *cobra.Command { return newPlan(c).cmd }

func newPlan(c choice) *plan {
	p := &plan{cloudCommand: cloudCommand{providers: c.providers, readOnly: true}}
	p.cmd = &cobra.Command{
		Use:     "plan [FILE or folder]...",
		Short:   "Show what would be created, changed and deleted in the cloud once Services in files are applied; nothing is written",
		Example: c.example("plan --cloud-provider=%s --kubeconfig=$HOME/.kube/config service.yaml"),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.run(cmd.Context(), args) },
	}
	fs := p.cmd.Flags()
	p.addFlags()
	fs.StringVar(&p.clusterName, "cluster-name", "kubernetes", "The name of the cluster, as the controllers are given it.")
	fs.StringVarP(&p.namespace, "namespace", "n", "", "The namespace of Services that name none; without it that of the kubeconfig.")
	fs.BoolVar(&p.detailedExitCode, "detailed-exitcode", false, "End with the exit status 2 where there is something to do.")
	p.services.addFlags(fs)
	p.applier.addFlags(fs)
	p.files.addFlags(p.cmd)
	addOutputFlag(p.cmd, &p.output, humanText)
	c.addFlags(p.cmd)
	return p
}

func (p *plan) run(ctx context.Context, args []string) error {
	err := errors.Join(checkOutput(p.output, humanText), p.files.addArguments(args), p.applier.validate(), usage(p.services.validate()))
	if err != nil {
		return err
	}
	manifests, err := p.read()
	if err != nil {
		return err
	}
	provider, in, err := p.inputs()
	if err != nil {
		return err
	}
	p.services.judge(provider, in, &p.defaults)
	cloud, client, err := p.open()
	if err != nil {
		return err
	}
	p.applier.client = client
	all, err := p.plan(ctx, cloud, manifests)
	if err != nil {
		return err
	}
	if err := p.print(all); err != nil {
		return err
	}
	switch {
	case slices.ContainsFunc(all, func(s plannedService) bool { return s.Error != "" }):
		return &printedError{errors.New("not everything could be planned")}
	case p.detailedExitCode && slices.ContainsFunc(all, func(s plannedService) bool { return len(s.Planned) > 0 }):
		return &printedError{errChanges}
	}
	return nil
}

// manifest is a Service in a file, as an object and decoded.
type manifest struct {
	object  map[string]any
	service *v1.Service
}

func (m manifest) encode() ([]byte, error) {
	data, err := json.Marshal(m.object)
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}
	return data, nil
}

// read returns the Services in the files.
func (p *plan) read() ([]manifest, error) {
	contents, err := p.files.read(p.cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	namespace := p.namespace
	if namespace == "" {
		namespace = contextNamespace(p.kubeconfig)
	}
	var all []manifest
	for _, c := range contents {
		found, err := servicesIn(c.data)
		if err != nil {
			return nil, fmt.Errorf("--filename %s: %w", c.name, err)
		}
		for _, m := range found {
			m.setNamespace(namespace)
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, errors.New("--filename: there is no Service")
	}
	return all, nil
}

// setNamespace sets the namespace of a manifest without one.
func (m manifest) setNamespace(namespace string) {
	metadata, ok := m.object["metadata"].(map[string]any)
	if !ok || m.service.Namespace != "" {
		return
	}
	metadata["namespace"], m.service.Namespace = namespace, namespace
}

func servicesIn(data []byte) ([]manifest, error) {
	var all []manifest
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
			kind, apiVersion := child(object, "kind"), child(object, "apiVersion")
			if kind == nil || kind.Value != "Service" || apiVersion == nil || apiVersion.Value != "v1" {
				continue
			}
			m := manifest{service: &v1.Service{}}
			if err := decode(object, m.service); err != nil {
				return nil, fmt.Errorf("line %d: this is not a valid Service: %w", object.Line, err)
			}
			if m.object, err = encodeJSON(object); err != nil {
				return nil, fmt.Errorf("line %d: %w", object.Line, err)
			}
			m.dropServerFields()
			all = append(all, m)
		}
	}
}

// dropServerFields removes what only the API server and controllers write, and what a dump of the cluster therefore has besides a manifest.
func (m manifest) dropServerFields() {
	delete(m.object, "status")
	if metadata, ok := m.object["metadata"].(map[string]any); ok {
		for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"} {
			delete(metadata, field)
		}
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, v1.LastAppliedConfigAnnotation)
		}
	}
	m.service.ManagedFields, m.service.ResourceVersion, m.service.UID, m.service.Generation = nil, "", "", 0
	m.service.CreationTimestamp, m.service.Status = metav1.Time{}, v1.ServiceStatus{}
	delete(m.service.Annotations, v1.LastAppliedConfigAnnotation)
}

// plan plans all Services that are or become of type LoadBalancer.
func (p *plan) plan(ctx context.Context, cloud cloudprovider.Interface, manifests []manifest) ([]plannedService, error) {
	planner, ok := cloud.(contract.Planner)
	if !ok {
		return nil, contract.ErrNoPlan
	}
	known, err := listNodes(ctx, p.applier.client)
	if err != nil {
		return nil, err
	}
	ctx, nodes := nodecount.With(ctx, known), backendNodes(known)
	all := []plannedService{}
	for _, m := range manifests {
		ctx, cancel := context.WithTimeout(ctx, planTimeout)
		result := plannedService{Service: qualifiedName(m.service), Planned: []contract.Planned{}}
		service, err := p.applier.apply(ctx, m)
		switch {
		case err != nil:
		case isLoadBalancer(service.after):
			result.Left, err = p.planService(ctx, planner, service.after, nodes, &result)
		case isLoadBalancer(service.before):
			err = p.planDeletion(ctx, cloud, service.after, &result)
		}
		cancel()
		if err != nil {
			result.Error = err.Error()
		}
		if err != nil || isLoadBalancer(service.before) || isLoadBalancer(service.after) {
			result.Findings = append(service.findings, result.Findings...)
			if len(result.Planned) > 0 {
				result.Findings = append(result.Findings, placeholders(m.service, service)...)
			}
			all = append(all, result)
		}
	}
	return all, nil
}

// placeholders reports values invented for the dry run, because the API server chooses others when the manifest is applied.
func placeholders(manifest *v1.Service, s applied) []contract.Finding {
	if !isLoadBalancer(s.after) {
		return nil
	}
	given := append(nodePorts(manifest), 0)
	if s.before != nil {
		given = append(given, nodePorts(s.before)...)
	}
	var made []string
	if s.before == nil {
		made = append(made, "the UID "+string(s.after.UID)+", which names in the cloud are made of")
	}
	for _, port := range nodePorts(s.after) {
		if !slices.Contains(given, port) {
			made = append(made, fmt.Sprintf("the node port %d", port))
		}
	}
	if len(made) == 0 {
		return nil
	}
	return []contract.Finding{{Reason: "Placeholder", Message: "the API server chooses others when this is applied: " + strings.Join(made, ", ")}}
}

// nodePorts returns a Service's node ports, including the health checks'; 0 for missing ones.
func nodePorts(s *v1.Service) []int32 {
	ports := []int32{s.Spec.HealthCheckNodePort}
	for _, p := range s.Spec.Ports {
		ports = append(ports, p.NodePort)
	}
	return ports
}

func isLoadBalancer(s *v1.Service) bool { return s != nil && s.Spec.Type == v1.ServiceTypeLoadBalancer }

// planService asks the controllers for their changes, and reports whether another controller serves the Service.
func (p *plan) planService(
	ctx context.Context, planner contract.Planner, service *v1.Service, nodes []*v1.Node, result *plannedService,
) (left bool, err error) {
	if p.services.apply(service); service.Spec.LoadBalancerClass != nil {
		return true, nil
	}
	planned, err := planner.PlanLoadBalancer(ctx, p.clusterName, service, nodes)
	result.Planned, result.Findings = append(result.Planned, planned.Changes...), planned.Findings
	if errors.Is(err, cloudprovider.ImplementedElsewhere) {
		return true, nil
	}
	return false, err
}

// planDeletion is for a Service that is no longer of type LoadBalancer.
func (p *plan) planDeletion(ctx context.Context, cloud cloudprovider.Interface, service *v1.Service, result *plannedService) error {
	balancers, ok := cloud.LoadBalancer()
	if !ok {
		return nil
	}
	settings, _, err := contract.Annotations.Parse(service.Annotations)
	switch {
	case err != nil:
		return err
	case settings.Protect:
		return fmt.Errorf("the load balancer is protected: it stays, and the Service keeps its finalizer, until the annotation %s is removed", contract.AnnotationProtect)
	case settings.Retain, settings.Disown:
		result.Findings = append(result.Findings, contract.Finding{Reason: "Retained", Message: "the load balancer stays in the cloud, as an annotation of the Service says"})
		return nil
	}
	_, exists, err := balancers.GetLoadBalancer(ctx, p.clusterName, service)
	if err != nil || !exists {
		return err
	}
	result.Planned = append(result.Planned, contract.Planned{
		Action: contract.PlanDelete, Object: "load balancer " + balancers.GetLoadBalancerName(ctx, p.clusterName, service), Detail: "with all that was made for it",
	})
	return nil
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

// backendNodes returns the nodes that the service controller would pass.
func backendNodes(all []*v1.Node) []*v1.Node {
	var nodes []*v1.Node
	for _, n := range all {
		if contract.MayReceive(n) {
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
	fmt.Fprintln(w, summary(all))
	for _, s := range all {
		for _, f := range s.Findings {
			fmt.Fprintf(w, "Service %s: %s: %s: %s\n", s.Service, map[bool]string{true: "warning", false: "note"}[f.Warning], f.Reason, f.Message)
		}
		switch {
		case s.Error != "":
			fmt.Fprintf(w, "Service %s: error: %s\n", s.Service, s.Error)
			continue
		case s.Left:
			fmt.Fprintf(w, "Service %s: left to another controller\n", s.Service)
			continue
		case len(s.Planned) == 0:
			fmt.Fprintf(w, "Service %s: nothing to do\n", s.Service)
			continue
		}
		fmt.Fprintf(w, "Service %s:\n", s.Service)
		for _, one := range s.Planned {
			fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %s  %s  %s", one.Action, shorten(one.Object), shorten(one.Detail)), " "))
			for _, f := range one.Fields {
				fmt.Fprintf(w, "    %s\n", fieldText(f))
			}
		}
	}
	return nil
}

// summary counts the changes, and the Services whose plan failed.
func summary(all []plannedService) string {
	count, failed := map[string]int{}, 0
	for _, s := range all {
		changed := map[string]bool{}
		for _, one := range s.Planned {
			if one.Action == contract.PlanChange && changed[one.Object] {
				continue // another change of the same object
			}
			changed[one.Object] = true
			count[one.Action]++
		}
		if s.Error != "" {
			failed++
		}
	}
	text := fmt.Sprintf("%d to create, %d to change, %d to delete", count[contract.PlanCreate], count[contract.PlanChange], count[contract.PlanDelete])
	if failed > 0 {
		text += fmt.Sprintf(", %s not planned", countOf(failed, "Service", "Services"))
	}
	return text
}

// cloudPath matches object paths of Azure, Google and NSX-T, and Amazon's names of load balancers and target groups. Its groups are the
// preceding character and the object's name.
var cloudPath = regexp.MustCompile(`(^|[\s(,])(?:https://[^\s,/]+/[^\s,]*/projects/|/subscriptions/|projects/|/infra/)[^\s,()]*/([^\s,()/]+)` +
	`|arn:[^\s,()/]+:(?:loadbalancer/(?:app|net)|targetgroup)/([^\s,()/]+)/[^\s,()/]+`)

// shorten replaces paths of cloud objects by their names.
func shorten(text string) string { return cloudPath.ReplaceAllString(text, "$1$2$3") }

// fieldText prints a field before and after: ~ changed, + added, - removed.
func fieldText(f contract.Field) string {
	if before, after := shorten(f.Before), shorten(f.After); before != after {
		f.Before, f.After = before, after
	}
	switch {
	case f.Before == "":
		return fmt.Sprintf("+ %s: %s", f.Name, f.After)
	case f.After == "":
		return fmt.Sprintf("- %s: %s", f.Name, f.Before)
	}
	return fmt.Sprintf("~ %s: %s -> %s", f.Name, f.Before, f.After)
}

// readOnlyTransport lets only reads, dry runs and reviews through to the API server.
type readOnlyTransport struct{ inner http.RoundTripper }

// errReadOnly is the error of all other requests.
var errReadOnly = errors.New("this command changes nothing in the cluster")

// RoundTrip implements http.RoundTripper.
func (t readOnlyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
	if !reads && r.URL.Query().Get("dryRun") != metav1.DryRunAll && !strings.HasSuffix(r.URL.Path, "accessreviews") {
		return nil, errReadOnly
	}
	return t.inner.RoundTrip(r)
}

// readOnly makes the clients of a configuration read-only.
func readOnly(config *restclient.Config) {
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return readOnlyTransport{inner} })
}

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	preflightTimeout = 5 * time.Minute
	// maxSkew is the clock difference that signatures and tokens tolerate.
	maxSkew = 2 * time.Minute
	// maxNamed limits how many nodes a message names.
	maxNamed = 5

	passed = "ok"
)

// preflight checks the program's prerequisites without changing anything.
type preflight struct {
	cloudCommand

	output   string
	accounts controllerAccounts
	results  []result
}

// result is the outcome of one check.
type result struct {
	Check string `json:"check"`
	// Result is ok, warning or error.
	Result  string `json:"result"`
	Message string `json:"message"`
	// Fix says how to solve a problem.
	Fix string `json:"fix,omitempty"`
}

func preflightCommand(c choice) *cobra.Command {
	p := &preflight{cloudCommand: cloudCommand{providers: c.providers}}
	p.cmd = &cobra.Command{
		Use: "preflight", Args: usageArgs(cobra.NoArgs),
		Example: c.example("preflight --cloud-provider=%s --kubeconfig=$HOME/.kube/config --as=system:serviceaccount:kube-system:cloud-controller-manager"),
		Short:   "Check settings, cloud, cluster, rights and nodes before the program runs; nothing is changed",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(p.output, humanText); err != nil {
				return err
			}
			if _, err := p.providers.Lookup(p.provider); err != nil {
				return usage(err)
			}
			if err := p.accounts.validate(); err != nil {
				return usage(err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), preflightTimeout)
			defer cancel()
			p.run(ctx)
			return p.print(cmd.OutOrStdout())
		},
	}
	p.addFlags()
	p.cmd.Flags().StringVar(&p.as, "as", "",
		"Ask the cluster as this user, such as system:serviceaccount:kube-system:cloud-controller-manager. Requires the right to impersonate it.")
	p.accounts.addFlag(p.cmd.Flags())
	addOutputFlag(p.cmd, &p.output, humanText)
	c.addFlags(p.cmd)
	return p.cmd
}

func (p *preflight) note(check, outcome, message, fix string) {
	p.results = append(p.results, result{check, outcome, message, fix})
}

// run makes the checks in the order of their dependencies.
func (p *preflight) run(ctx context.Context) {
	provider, in, err := p.inputs()
	if err == nil && provider.Warnings != nil {
		for _, w := range schema.Problems(provider.Warnings(in)) {
			p.note("settings", severityWarning, w.Error(), "correct it, or remove it where no other program reads the file")
		}
	}
	var cloud cloudprovider.Interface
	if err == nil {
		cloud, err = p.providers.Open(provider.Name, in)
	}
	if err != nil {
		for _, problem := range schema.Problems(err) {
			p.note("settings", severityError, problem.Error(), "correct this setting")
		}
		return
	}
	p.note("settings", passed, "all settings are valid", "")
	works := p.checkCloud(ctx, cloud)
	client, err := p.connect(cloud)
	if err != nil {
		p.note("cluster", severityError, err.Error(), "give a kubeconfig of the cluster by --kubeconfig, or run this in a pod")
		return
	}
	if p.checkCluster(ctx, client) {
		p.checkRights(ctx, client, provider.Installation)
		if works {
			p.checkNodes(ctx, client, cloud, sameInstance(provider))
		}
		p.checkServingRequests(ctx, client)
	}
}

// checkCloud reports whether the cloud's API works.
func (p *preflight) checkCloud(ctx context.Context, cloud cloudprovider.Interface) bool {
	api, ok := cloud.(registry.CloudAPI)
	if !ok {
		p.note("cloud API", severityWarning, "this provider cannot tell whether its cloud's API works", "")
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := api.CheckAPI(ctx); err != nil {
		p.note("cloud API", severityError, err.Error(), "check the network and proxies on the way to the cloud, the credential, and the account or project that it is for")
		return false
	}
	p.note("cloud API", passed, "the cloud answers, and takes the credential", "")
	if checker, ok := cloud.(registry.SettingsChecker); ok {
		for _, problem := range schema.Problems(checker.CheckSettings(ctx)) {
			p.note("cloud settings", severityError, problem.Error(), "correct this setting")
		}
	}
	if clock, ok := cloud.(registry.Clock); ok {
		if ahead, known := clock.ClockSkew(); known && ahead.Abs() > maxSkew {
			p.note("clock", severityError, fmt.Sprintf("the clock of this machine is %s off the cloud's", ahead.Abs().Round(time.Second)), "set the clock, by NTP for example: tokens and signatures are refused otherwise")
		} else if known {
			p.note("clock", passed, "the clock agrees with the cloud's", "")
		}
	}
	return true
}

// checkCluster reports whether the API server answers.
func (p *preflight) checkCluster(ctx context.Context, client kubernetes.Interface) bool {
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		p.note("cluster", severityError, "the API server does not answer: "+err.Error(), "check the address and the certificates of the kubeconfig")
		return false
	}
	p.note("cluster", passed, "the API server answers; its version is "+version.GitVersion, "")
	namespace, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		p.note("cluster ID", severityWarning, "the identity of the cluster cannot be read, so load balancers are not marked as its own: "+err.Error(), "grant get on the namespace kube-system")
		return true
	}
	p.note("cluster ID", passed, "load balancers are marked with "+string(namespace.UID), "")
	return true
}

// checkNodes finds nodes that the program cannot serve.
func (p *preflight) checkNodes(
	ctx context.Context, client kubernetes.Interface, cloud cloudprovider.Interface, same func(a, b string) bool,
) {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		p.note("nodes", severityError, "the nodes cannot be listed: "+err.Error(), "grant list on nodes")
		return
	}
	instances, ok := cloud.InstancesV2()
	if !ok {
		return
	}
	var lost, plain, differing, relabelled []string
	var reason error
	for i := range list.Items {
		n := &list.Items[i]
		metadata, err := instances.InstanceMetadata(ctx, n)
		if err != nil {
			lost, reason = append(lost, n.Name), err
		}
		if different := differences(n, metadata, same); len(different) > 0 {
			differing = append(differing, n.Name+" ("+strings.Join(different, ", ")+")")
		}
		if different := labelDifferences(n, metadata); len(different) > 0 {
			relabelled = append(relabelled, n.Name+" ("+strings.Join(different, ", ")+")")
		}
		if n.Spec.ProviderID == "" && !contract.Uninitialized(n) {
			plain = append(plain, n.Name)
		}
	}
	if len(lost) > 0 {
		p.note(
			"nodes", severityError,
			fmt.Sprintf("%d of %d nodes cannot be served: %s; the last: %s", len(lost), len(list.Items), joinSome(lost), reason),
			"see the message for what is missing in the cloud; nodes of other clouds are left alone",
		)
	}
	if len(plain) > 0 {
		p.note(
			"nodes", severityWarning,
			fmt.Sprintf("%d of %d nodes have neither a provider ID nor the taint of new nodes: %s", len(plain), len(list.Items), joinSome(plain)),
			"start their kubelets with --cloud-provider=external",
		)
	}
	if len(differing) > 0 {
		p.note(
			"node facts", severityWarning,
			fmt.Sprintf("%d of %d nodes differ from what the cloud says: %s", len(differing), len(list.Items), joinSome(differing)),
			"addresses are corrected by the controllers; provider IDs are those of the first registration: delete such a Node and let it register again",
		)
	}
	p.noteLabels(relabelled, len(list.Items))
	if len(lost)+len(plain) == 0 {
		p.note("nodes", passed, fmt.Sprintf("all %d nodes have an instance, or are another cloud's", len(list.Items)), "")
	}
}

func (p *preflight) noteLabels(relabelled []string, nodes int) {
	if len(relabelled) > 0 {
		p.note(
			"node labels", severityWarning,
			fmt.Sprintf("the labels of %d of %d nodes differ from what the cloud says: %s", len(relabelled), nodes, joinSome(relabelled)),
			"labels that this program wrote are corrected; others stay until the cloud's value changes: see docs/node-labels.md",
		)
	}
}

// sameInstance compares provider IDs, which have several forms on some clouds.
func sameInstance(p registry.Provider) func(a, b string) bool {
	return func(a, b string) bool {
		return a == b || (p.InstanceKey != nil && p.InstanceKey(a) != "" && p.InstanceKey(a) == p.InstanceKey(b))
	}
}

// differences lists values of a Node that differ from its cloud's. Missing values do not count, because a Node has none before it is
// initialised.
func differences(n *v1.Node, cloud *cloudprovider.InstanceMetadata, same func(a, b string) bool) []string {
	if cloud == nil || contract.Uninitialized(n) {
		return nil // another cloud's, or unknown
	}
	var all []string
	if n.Spec.ProviderID != "" && cloud.ProviderID != "" && !same(n.Spec.ProviderID, cloud.ProviderID) {
		all = append(all, "provider ID "+n.Spec.ProviderID+", in the cloud "+cloud.ProviderID)
	}
	for _, a := range n.Status.Addresses {
		// Without addresses from the cloud, the Node keeps its own.
		told := len(cloud.NodeAddresses) > 0 && (a.Type == v1.NodeInternalIP || a.Type == v1.NodeExternalIP)
		if told && !slices.Contains(cloud.NodeAddresses, a) {
			all = append(all, fmt.Sprintf("%s %s, which the cloud does not know", a.Type, a.Address))
		}
	}
	return all
}

// labelDifferences returns the Node's labels that differ from its cloud's. Missing ones do not count.
func labelDifferences(n *v1.Node, cloud *cloudprovider.InstanceMetadata) []string {
	if cloud == nil || contract.Uninitialized(n) {
		return nil // another cloud's, or unknown
	}
	told := map[string]string{
		v1.LabelInstanceTypeStable: cloud.InstanceType, v1.LabelTopologyZone: cloud.Zone, v1.LabelTopologyRegion: cloud.Region,
	}
	maps.Copy(told, cloud.AdditionalLabels)
	var all []string
	for _, key := range slices.Sorted(maps.Keys(told)) {
		if has := n.Labels[key]; has != "" && told[key] != "" && has != told[key] {
			all = append(all, fmt.Sprintf("%s %s, in the cloud %s", key, has, told[key]))
		}
	}
	return all
}

func joinSome(names []string) string {
	if len(names) > maxNamed {
		return strings.Join(names[:maxNamed], ", ") + fmt.Sprintf(" and %d more", len(names)-maxNamed)
	}
	return strings.Join(names, ", ")
}

// print writes the results; any error makes the command fail.
func (p *preflight) print(w io.Writer) error {
	wrong := 0
	for _, r := range p.results {
		if r.Result == severityError {
			wrong++
		}
	}
	if p.output != humanText {
		if err := printFor(w, p.output, map[string]any{"ok": wrong == 0, "results": p.results}); err != nil {
			return fmt.Errorf("writing the results: %w", err)
		}
	} else {
		for _, r := range p.results {
			fmt.Fprintf(w, "%-8s %-14s %s\n", r.Result, r.Check, r.Message)
			if r.Fix != "" {
				fmt.Fprintf(w, "%23s %s\n", "", "to do: "+r.Fix)
			}
		}
	}
	switch wrong {
	case 0:
		return nil
	case 1:
		return errors.New("1 check failed")
	}
	return fmt.Errorf("%d checks failed", wrong)
}

package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// handover lists load balancers that another cluster has marked and this one's Services have recorded, and on request marks them as ours. A
// restored cluster needs it because its namespace kube-system has a new UID.
type handover struct {
	objectsCommand

	from string
}

func handoverCommand(c choice) *cobra.Command { return newHandover(c).cmd }

func newHandover(c choice) *handover {
	h := &handover{}
	c.fits = func(p registry.Provider) bool { return p.Handover }
	h.set(
		c, "handover", "List load balancers of this cluster's Services that carry another cluster's mark; with --from, mark them as ours", "changed", h.run,
	)
	h.cmd.Flags().StringVar(&h.from, "from", "", "UID that the namespace kube-system had before the cluster was restored. Load balancers with its mark are marked as ours, after asking for the cluster's name.")
	return h
}

func (h *handover) run(ctx context.Context) error {
	if h.yes && h.from == "" {
		return usage(errors.New("--yes: needs --from, the UID whose load balancers are handed over"))
	}
	cloud, client, err := h.open()
	if err != nil {
		return err
	}
	mover, ok := cloud.(contract.LoadBalancerHandover)
	if !ok {
		return contract.ErrNoHandover
	}
	if err := h.move(ctx, mover, client); !errors.Is(err, contract.ErrNoHandover) {
		return err
	}
	return h.unsupportedError()
}

// unsupportedError says which clouds support it, and what to do on others.
func (h *handover) unsupportedError() error {
	var can []string
	for _, p := range h.providers.Providers() {
		if p.Handover {
			can = append(can, p.Name)
		}
	}
	text := "; no linked provider can"
	if len(can) > 0 {
		text = "; of the linked ones these can: " + strings.Join(can, ", ")
	}
	return fmt.Errorf("%w%s. Elsewhere replace the other cluster's mark on each load balancer by this cluster's with the cloud's own tool, "+
		"once no program runs for the other cluster any more; docs/load-balancer-ownership.md says what marks look like", contract.ErrNoHandover, text)
}

// foreignLoadBalancer is a load balancer recorded by a Service of this cluster and marked by another cluster.
type foreignLoadBalancer struct {
	contract.MarkedLoadBalancer
	// Decision is the decision with its reason.
	Decision string `json:"decision"`
	service  *v1.Service
	// ours: it will be marked as ours.
	ours bool
}

// foreignLoadBalancers decides about marked load balancers. Those without a Service here are ignored; those recorded by several Services
// are ambiguous.
func (h *handover) foreignLoadBalancers(marked []contract.MarkedLoadBalancer, services []*v1.Service, self string) []foreignLoadBalancer {
	byName := map[string]*v1.Service{}
	for _, s := range services {
		byName[s.Namespace+"/"+s.Name] = s
	}
	list := []foreignLoadBalancer{}
	for _, m := range marked {
		if m.Cluster == "" || m.Cluster == self || len(m.Claims) == 0 {
			continue
		}
		f := foreignLoadBalancer{MarkedLoadBalancer: m, service: byName[m.Claims[0]]}
		switch {
		case len(m.Claims) > 1 || f.service == nil:
			f.Decision = "stays: several Services record it; leave the record on one of them"
		case h.from == "":
			f.Decision = "stays: name the UID by --from"
		case m.Cluster != h.from:
			f.Decision = "stays: another cluster's"
		default:
			f.ours, f.Decision = true, "is marked as this cluster's"
		}
		list = append(list, f)
	}
	return list
}

// move lists load balancers, and hands over those of --from.
func (h *handover) move(ctx context.Context, cloud contract.LoadBalancerHandover, client kubernetes.Interface) error {
	system, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading this cluster's UID from the namespace kube-system: %w", err)
	}
	if h.from == string(system.UID) {
		return fmt.Errorf("--from=%s: is this cluster itself; name the UID that its namespace kube-system had before", h.from)
	}
	services, err := listServices(ctx, client)
	if err != nil {
		return err
	}
	marked, err := cloud.MarkedLoadBalancers(ctx, services)
	if err != nil {
		return fmt.Errorf("looking for load balancers that another cluster has marked: %w", err)
	}
	found := h.foreignLoadBalancers(marked, services, string(system.UID))
	if err := h.print(found); err != nil {
		return err
	}
	ours := slices.DeleteFunc(slices.Clone(found), func(f foreignLoadBalancer) bool { return !f.ours })
	if h.from == "" && len(found) > 0 {
		fmt.Fprintln(h.cmd.ErrOrStderr(), "Nothing was changed. If this cluster had one of these UIDs before it was restored, and no program runs for that cluster any more, name it by --from.")
	}
	if len(ours) == 0 {
		return nil
	}
	if err := h.ask(fmt.Sprintf("No program may run any more for the cluster %s. Type the name of this cluster, %s, to mark %s as its own: ",
		h.from, h.clusterName, countOf(len(ours), "load balancer", "load balancers"))); err != nil {
		return err
	}
	return h.mark(ctx, cloud, ours)
}

func (h *handover) print(found []foreignLoadBalancer) error {
	w := h.cmd.OutOrStdout()
	if h.output != humanTable {
		return printFor(w, h.output, found)
	}
	if len(found) == 0 {
		fmt.Fprintln(w, "No load balancer of this cluster's Services carries another cluster's mark.")
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "SERVICE\tID\tNAME\tMARKED BY\tDECISION")
	for _, f := range found {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", strings.Join(f.Claims, ","), f.ID, f.Name, f.Cluster, f.Decision)
	}
	return t.Flush()
}

// mark continues after a failure, because the command can be repeated.
func (h *handover) mark(ctx context.Context, cloud contract.LoadBalancerHandover, ours []foreignLoadBalancer) error {
	var problems []error
	for _, f := range ours {
		if err := cloud.RemarkLoadBalancer(ctx, f.MarkedLoadBalancer, f.service.UID); err != nil {
			problems = append(problems, fmt.Errorf("load balancer %s of Service %s: %w", f.ID, f.Claims[0], err))
			continue
		}
		fmt.Fprintf(h.cmd.ErrOrStderr(), "Marked load balancer %s as this cluster's.\n", f.ID)
	}
	return errors.Join(problems...)
}

package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"
	frameworkapp "k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/component-base/featuregate"
	controllermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/events"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/nodelabels"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// nodeLabelController corrects labels of Nodes with the metadata that the framework's node controller requests.
const nodeLabelController = "node-label-controller"

type nodeLabels struct {
	topology bool
	fromTags []string
	// rules are those of fromTags.
	rules nodelabels.Rules
}

func (n *nodeLabels) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&n.topology, "update-topology-labels", n.topology, "Correct also the labels of zone and region when an instance moves in the cloud. Kubernetes expects them never to change: volumes and running Pods keep the old zone. Without this flag a move is only an event.")
	fs.StringSliceVar(&n.fromTags, "node-labels-from-tags", n.fromTags, "Tags of instances that become labels of their Nodes: tag=label, tags*=labels* for all tags with a prefix, or cluster-autoscaler for the tags k8s.io/cluster-autoscaler/node-template/label/*. Whoever may tag instances can then label Nodes.")
}

// validateLabels reports all faults of the rules for labels from tags.
func (m *manager) validateLabels(p registry.Provider) (err error) {
	if len(m.labels.fromTags) == 0 {
		return nil
	}
	m.labels.rules, err = nodelabels.ParseRules(m.labels.fromTags, m.policy.NodeSelector, p.NodeLabels)
	if !p.InstanceTags.Served() {
		err = errors.Join(err, fmt.Errorf("--node-labels-from-tags: the instances of %s show no tags; leave it out, see docs/node-labels.md", p.Name))
	}
	if enabled := m.enabledControllers(); !enabled.HasAll(nodeLabelController, names.CloudNodeController) {
		err = errors.Join(err, fmt.Errorf("--node-labels-from-tags needs %s and %s in --controllers", nodeLabelController, names.CloudNodeController))
	}
	return err
}

// correctNodeLabels returns the controller, which uses the account of the framework's node controller.
func (m *manager) correctNodeLabels(account frameworkapp.ControllerInitContext) frameworkapp.ControllerInitFuncConstructor {
	return frameworkapp.ControllerInitFuncConstructor{
		InitContext: account,
		Constructor: func(i frameworkapp.ControllerInitContext, c *config.CompletedConfig, cloud cloudprovider.Interface) frameworkapp.InitFunc {
			return func(ctx context.Context, _ controllermanager.ControllerContext) (controller.Interface, bool, error) {
				guarded, ok := cloud.(*guard.Cloud)
				if !ok || !m.enabledControllers().Has(names.CloudNodeController) {
					return nil, false, nil
				}
				client := c.ClientBuilder.ClientOrDie(i.ClientName)
				recorder := events.NewRecorder(client, nodeLabelController, ctx.Done())
				labels := nodelabels.New(client, recorder, guarded.IsOurs, m.labels.topology, m.labels.rules)
				if correctsAdditional(utilfeature.DefaultMutableFeatureGate) {
					labels.LeaveAdditional()
				}
				guarded.ObserveMetadata(labels.Observe, m.labels.rules.Any())
				rescue.Go("correcting labels of Nodes", func() { labels.Run(ctx) })
				return nil, true, nil
			}
		},
	}
}

// additionalLabelsGate is the framework's switch for its own correction of additional labels, in versions that have it.
const additionalLabelsGate featuregate.Feature = "CloudNodeAdditionalLabelsReconciliation"

func correctsAdditional(gates featuregate.MutableFeatureGate) bool {
	_, known := gates.GetAll()[additionalLabelsGate]
	return known && gates.Enabled(additionalLabelsGate)
}

// withInitializer gives a controller its own field manager, to distinguish its labels from others'.
func withInitializer(inner frameworkapp.ControllerInitFuncConstructor) frameworkapp.ControllerInitFuncConstructor {
	construct := inner.Constructor
	inner.Constructor = func(
		i frameworkapp.ControllerInitContext, c *config.CompletedConfig, cloud cloudprovider.Interface,
	) frameworkapp.InitFunc {
		other := withInformers(c, c.SharedInformers)
		other.ClientBuilder = initializerClients{c.ClientBuilder}
		return construct(i, other, cloud)
	}
	return inner
}

// initializerClients creates clients whose user agent, and thus field manager, starts with nodelabels.Initializer.
type initializerClients struct {
	cloudprovider.ControllerClientBuilder
}

// ClientOrDie implements cloudprovider.ControllerClientBuilder.
func (b initializerClients) ClientOrDie(name string) kubernetes.Interface {
	clientConfig := b.ConfigOrDie(name)
	_, rest, _ := strings.Cut(clientConfig.UserAgent, "/")
	clientConfig.UserAgent = nodelabels.Initializer + "/" + rest
	return kubernetes.NewForConfigOrDie(clientConfig)
}

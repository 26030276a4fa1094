package app

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
	frameworkapp "k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	controllermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/events"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
	"github.com/anyccm/cloud-controller-manager/registry/servingcert"
)

// servingController approves requests of kubelets for serving certificates. It is off by default.
const servingController = "kubelet-serving-approver"

type servingCerts struct {
	domain   string
	reserved []string
}

func (s *servingCerts) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.domain, "kubelet-serving-cluster-domain", "cluster.local", "DNS domain of the cluster. "+servingController+" approves no name under it.")
	fs.StringSliceVar(&s.reserved, "kubelet-serving-reserved", s.reserved, "Names and addresses that "+servingController+" approves for no node, such as the public name of the API server. Those of Services, and the address by which this program reaches the API server, are always among them.")
}

// validateServing refuses the controller on a cloud that does not attest its instances.
func (m *manager) validateServing(p registry.Provider) error {
	if p.Features.ServingCertificates == registry.Done || !m.enabledControllers().Has(servingController) {
		return nil
	}
	return fmt.Errorf("--controllers names %s, and %s approves nothing: what a certificate would say of an instance comes from its guest, its Node or several reads; leave it out, see docs/serving-certificates.md", servingController, p.Name)
}

// approveServing returns the controller, which uses the program's account.
func (m *manager) approveServing() frameworkapp.ControllerInitFuncConstructor {
	frameworkapp.ControllersDisabledByDefault.Insert(servingController)
	return frameworkapp.ControllerInitFuncConstructor{
		InitContext: frameworkapp.ControllerInitContext{ClientName: servingController},
		Constructor: func(i frameworkapp.ControllerInitContext, c *config.CompletedConfig, cloud cloudprovider.Interface) frameworkapp.InitFunc {
			return func(ctx context.Context, _ controllermanager.ControllerContext) (controller.Interface, bool, error) {
				guarded, ok := cloud.(*guard.Cloud)
				if !ok {
					return nil, false, nil
				}
				api, err := url.Parse(c.Kubeconfig.Host)
				if err != nil {
					return nil, false, errors.New("the address of the API server is no URL")
				}
				client := c.ClientBuilder.ClientOrDie(i.ClientName)
				core := c.SharedInformers.Core().V1()
				approver := &servingcert.Controller{
					Client: client, Events: events.NewRecorder(client, servingController, ctx.Done()), Cloud: guarded,
					Nodes: core.Nodes().Lister(), Services: core.Services().Lister(),
					Domain: m.serving.domain, Reserved: append(m.serving.reserved, api.Hostname()),
				}
				nodes, services := core.Nodes().Informer().HasSyncedChecker(), core.Services().Informer().HasSyncedChecker()
				registerServing(approver, guarded.ProviderName())
				rescue.Go("approving serving certificates", func() {
					if !cache.WaitFor(ctx, "", nodes, services) {
						return
					}
					if err := approver.Run(ctx); err != nil {
						klog.ErrorS(err, "No serving certificate is approved")
					}
				})
				return nil, true, nil
			}
		},
	}
}

var waitingForServing = metrics.NewDesc("anyccm_serving_certificate_waiting_nodes",
	"Our Nodes whose kubelet's newest request for a serving certificate nobody has decided on.", []string{"provider"}, nil, metrics.ALPHA, "")

// registerServing registers the metrics of the controller.
func registerServing(approver *servingcert.Controller, provider string) {
	approvals := metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "anyccm", Subsystem: "serving_certificate", Name: "approvals_total", StabilityLevel: metrics.ALPHA,
		Help: "Requests of kubelets for serving certificates that were approved.",
	}, []string{"provider"})
	legacyregistry.MustRegister(approvals)
	legacyregistry.CustomMustRegister(&servingMetrics{approver: approver, provider: provider})
	approved := approvals.WithLabelValues(provider)
	approved.Add(0)
	approver.Approved = approved.Inc
}

type servingMetrics struct {
	metrics.BaseStableCollector

	approver *servingcert.Controller
	provider string
}

// DescribeWithStability implements metrics.StableCollector.
func (*servingMetrics) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- waitingForServing }

// CollectWithStability implements metrics.StableCollector.
func (m *servingMetrics) CollectWithStability(ch chan<- metrics.Metric) {
	ch <- metrics.NewLazyConstMetric(waitingForServing, metrics.GaugeValue, float64(m.approver.WaitingNodes()), m.provider)
}

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/meta"
)

func (a *app) featuresCommand() *cobra.Command {
	return group("features", "Show, raise and lower the feature levels of the cluster", a.featuresDescribe(), a.featuresUpgrade(), a.featuresDowngrade())
}

// featureJSON is what describe says of a feature. Finalized is null if it is off.
type featureJSON struct {
	Feature      string `json:"feature"`
	SupportedMin *int16 `json:"supported_min"` // null: the broker doesn't support it
	SupportedMax *int16 `json:"supported_max"`
	Finalized    *int16 `json:"finalized"`
	Release      string `json:"release,omitempty"` // of metadata.version
}

func (a *app) featuresDescribe() *cobra.Command {
	c := &cobra.Command{
		Use: "describe", Short: "Show the levels that a broker supports and those of the cluster", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, adm *admin) error {
				list, epoch, err := features(ctx, adm, a.env.Version)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(map[string]any{"epoch": epoch, "features": list})
				}
				t := table{header: []string{"FEATURE", "SUPPORTED", "LEVEL", "RELEASE"}}
				for _, f := range list {
					supported, level := "-", "-"
					if f.SupportedMin != nil {
						supported = fmt.Sprintf("%d to %d", *f.SupportedMin, *f.SupportedMax)
					}
					if f.Finalized != nil {
						level = strconv.Itoa(int(*f.Finalized))
					}
					t.add(f.Feature, supported, level, orDash(f.Release))
				}
				a.printf("%s", t.String())
				return nil
			})
		},
	}
	return a.clientFlags(c)
}

// features asks a broker for its features and the cluster's, by name, and for the epoch of
// the latter, nil if there is none.
func features(ctx context.Context, adm *admin, version string) ([]*featureJSON, *int64, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "milena", strings.TrimLeft(version, "v")
	resp, err := req.RequestWith(ctx, adm.raw)
	if err != nil {
		return nil, nil, err
	}
	if err := answer("features", codeError(resp.ErrorCode), ""); err != nil {
		return nil, nil, err
	}
	list := []*featureJSON{}
	byName := map[string]*featureJSON{}
	named := func(name string) *featureJSON {
		if byName[name] == nil {
			byName[name] = &featureJSON{Feature: name}
			list = append(list, byName[name])
		}
		return byName[name]
	}
	for _, s := range resp.SupportedFeatures {
		f := named(s.Name)
		f.SupportedMin, f.SupportedMax = &s.MinVersion, &s.MaxVersion
	}
	for _, x := range resp.FinalizedFeatures {
		f := named(x.Name)
		if f.Finalized = &x.MaxVersionLevel; x.Name == meta.MetadataVersionFeature {
			f.Release = releaseOf(x.MaxVersionLevel)
		}
	}
	slices.SortFunc(list, func(a, b *featureJSON) int { return cmp.Compare(a.Feature, b.Feature) })
	if resp.FinalizedFeaturesEpoch < 0 {
		return list, nil, nil
	}
	return list, &resp.FinalizedFeaturesEpoch, nil
}

// releaseOf names the metadata.version, "" if this release doesn't know it.
func releaseOf(level int16) string {
	for _, r := range releases() {
		if level < r.first || level > r.last {
			continue
		}
		if r.name == "3.3" { // its first versions are too old
			return r.name + "-IV3"
		}
		return fmt.Sprintf("%s-IV%d", r.name, level-r.first)
	}
	return ""
}

// Upgrade types of UpdateFeatures.
const (
	upgradeFeature         int8 = 1
	safeDowngradeFeature   int8 = 2
	unsafeDowngradeFeature int8 = 3
)

func (a *app) featuresUpgrade() *cobra.Command {
	var release string
	var dryRun bool
	c := &cobra.Command{
		Use: "upgrade [FEATURE=LEVEL…]", Short: "Raise feature levels, all or none",
		Long: "Every broker and controller has to support the new levels: upgrade the software of all nodes first. A level of\n" +
			"metadata.version can be a release, such as 4.4 or 4.4-IV1.",
		Example: "  milena features upgrade --release-version 4.4\n  milena features upgrade mirror.version=1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if release != "" {
				args = append(args, meta.MetadataVersionFeature+"="+release)
			}
			return a.updateFeatures(cmd, args, upgradeFeature, dryRun)
		},
	}
	c.Flags().StringVar(&release, "release-version", "", "raise metadata.version to that of this Kafka `RELEASE`")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "check and change nothing")
	return a.clientFlags(c)
}

func (a *app) featuresDowngrade() *cobra.Command {
	var release string
	var dryRun, unsafe bool
	c := &cobra.Command{
		Use: "downgrade [FEATURE=LEVEL…]", Short: "Lower feature levels, all or none; level 0 turns a feature off",
		Example: "  milena features downgrade mirror.version=0",
		RunE: func(cmd *cobra.Command, args []string) error {
			kind := safeDowngradeFeature
			if unsafe {
				kind = unsafeDowngradeFeature
			}
			if release != "" {
				args = append(args, meta.MetadataVersionFeature+"="+release)
			}
			return a.updateFeatures(cmd, args, kind, dryRun)
		},
	}
	c.Flags().StringVar(&release, "release-version", "", "lower metadata.version to that of this Kafka `RELEASE`")
	c.Flags().BoolVar(&unsafe, "unsafe", false, "also where metadata would be lost, if the cluster can do that")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "check and change nothing")
	return a.clientFlags(c)
}

// updateFeatures sends the wished levels, FEATURE=LEVEL each.
func (a *app) updateFeatures(cmd *cobra.Command, args []string, kind int8, dryRun bool) error {
	if len(args) == 0 {
		return usagef("%s needs FEATURE=LEVEL: see %s --help", words(cmd), cmd.CommandPath())
	}
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.TimeoutMillis, req.ValidateOnly = int32(min(a.timeout, 60000)), dryRun
	for _, arg := range args {
		u, err := featureUpdate(arg, kind)
		if err != nil {
			return err
		}
		req.FeatureUpdates = append(req.FeatureUpdates, u)
	}
	return a.admin(cmd, func(ctx context.Context, adm *admin) error {
		resp, err := req.RequestWith(ctx, adm.raw)
		if err != nil {
			return err
		}
		if err := answer("features", codeError(resp.ErrorCode), deref(resp.ErrorMessage)); err != nil {
			return err
		}
		for _, r := range resp.Results {
			if err := answer("feature "+r.Feature, codeError(r.ErrorCode), deref(r.ErrorMessage)); err != nil {
				return err
			}
		}
		levels := map[string]int16{}
		for _, u := range req.FeatureUpdates {
			levels[u.Feature] = u.MaxVersionLevel
		}
		if a.json {
			return a.printJSON(map[string]any{"dry_run": dryRun, "levels": levels})
		}
		for _, u := range req.FeatureUpdates {
			if dryRun {
				a.printf("Feature %s could be at level %d.\n", u.Feature, u.MaxVersionLevel)
			} else {
				a.printf("Feature %s is at level %d.\n", u.Feature, u.MaxVersionLevel)
			}
		}
		return nil
	})
}

func featureUpdate(arg string, kind int8) (u kmsg.UpdateFeaturesRequestFeatureUpdate, err error) {
	name, value, ok := strings.Cut(arg, "=")
	u = kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.UpgradeType, u.AllowDowngrade = strings.TrimSpace(name), kind, kind != upgradeFeature
	n, numErr := strconv.ParseInt(value, 10, 16)
	u.MaxVersionLevel = int16(n)
	if ok && numErr != nil && u.Feature == meta.MetadataVersionFeature {
		if u.MaxVersionLevel, ok = metadataLevel(value); !ok {
			return u, usagef("%s=%s: no such release of Kafka is known: give one from 3.3 to 4.4, or a number", u.Feature, value)
		}
		return u, nil
	}
	if !ok || numErr != nil || n < 0 || u.Feature == "" {
		return u, usagef("%q is not FEATURE=LEVEL", arg)
	}
	return u, nil
}

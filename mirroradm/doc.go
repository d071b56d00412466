// Package mirroradm is the admin client of Cluster Mirroring (KIP-1279): its calls on a kgo.Client, in shapes like kadm's.
//
//	cl, err := kgo.NewClient(kgo.SeedBrokers("standby:9092"), kgo.MaxVersions(nil))
//	adm := mirroradm.NewClient(cl)
//	mirrors, err := adm.Describe(ctx)
//
// The client must be made with kgo.MaxVersions(nil): kgo would refuse API keys it does not know otherwise. It talks to the
// destination cluster, the one that holds the mirror; any of its brokers answers every call.
//
// A call returns an error of its own if the cluster could not be asked or refused the request as a whole. What became of each
// topic is in the results, which may hold failures beside successes: see [TopicResults.Error]. What a cluster answers is an
// [*Error], with Kafka's code, and matches its Code with errors.Is:
//
//	if errors.Is(err, mirroradm.UnknownClusterMirror) { … }
//
// Procedures that take both clusters are functions of two clients: [SurveySource] and [PlanVerify] look, [PlanSwitchover] and
// [PlanFailback] look and then do; [StopAll] is a failover. Clients that are to reach a cluster whatever its fence says are made with
// [Software].
//
// The calls between brokers (ReadMirrorStates, WriteMirrorStates, ReadMirrorOffsets, BumpLeaderEpochs) are not here: what an
// operator needs of them is in Describe.
package mirroradm

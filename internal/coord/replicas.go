package coord

import "milena/internal/replica"

// Replicas opens the logs of a topic's partitions that this broker leads.
func Replicas(m *replica.Manager, topic string) OpenLog {
	return func(partition, epoch int32, committed func(hw int64), lost func(error)) (Log, error) {
		p, err := m.Get(topic, partition)
		if err != nil {
			return nil, err
		}
		return p.MachineLog(epoch, committed, lost), nil
	}
}

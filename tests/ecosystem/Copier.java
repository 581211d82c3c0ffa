import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Read, process, write, with the offsets in the same transaction, as tests/cluster/copier.py does with librdkafka. Options: --bootstrap --source
 * --target --group --transactional-id. Ends with status 3 after an error, and with its standard input.
 */
public class Copier {
    public static void main(String[] arguments) {
        Map<String, String> options = new HashMap<>();
        for (int index = 0; index + 1 < arguments.length; index += 2) {
            options.put(arguments[index].substring(2), arguments[index + 1]);
        }
        Thread watch = new Thread(Copier::endWithInput);
        watch.setDaemon(true);
        watch.start();
        try {
            copy(options);
        } catch (KafkaException error) {
            System.err.println(options.get("transactional-id") + ": " + error);
        }
        Runtime.getRuntime().halt(3);
    }

    private static void copy(Map<String, String> options) {
        String id = options.get("transactional-id");
        Properties writing = new Properties();
        writing.put("bootstrap.servers", options.get("bootstrap"));
        writing.put("transactional.id", id);
        writing.put("transaction.timeout.ms", 10_000);
        writing.put("max.block.ms", 30_000);
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();

        Properties reading = new Properties();
        reading.put("bootstrap.servers", options.get("bootstrap"));
        reading.put("group.id", options.get("group"));
        reading.put("group.instance.id", id);
        reading.put("enable.auto.commit", false);
        reading.put("isolation.level", "read_committed");
        reading.put("auto.offset.reset", "earliest");
        reading.put("session.timeout.ms", 6_000);
        reading.put("heartbeat.interval.ms", 1_000);
        reading.put("max.poll.records", 50);
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(options.get("source")));
        while (true) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(500));
            if (records.isEmpty()) {
                continue;
            }
            producer.beginTransaction();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                producer.send(new ProducerRecord<>(options.get("target"), record.partition(), record.key(), record.value()));
            }
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (TopicPartition partition : records.partitions()) {
                offsets.put(partition, new OffsetAndMetadata(consumer.position(partition)));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            producer.commitTransaction();
        }
    }

    private static void endWithInput() {
        try {
            while (System.in.read() >= 0) {
                // nothing is expected
            }
        } catch (java.io.IOException closed) {
            System.err.println("standard input: " + closed);
        }
        Runtime.getRuntime().halt(0);
    }
}

package orders;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;

/** Order service on Spring Boot 3.5: java -Dsightings=FILE orders.Main */
@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
@Import(OrderController.class)
public class Main {
    @Bean
    Sightings sightings() {
        return Ready.sightings("spring35");
    }

    public static void main(String[] args) {
        SpringApplication application = new SpringApplication(Main.class);
        application.addListeners(new Ready());
        application.run(Ready.SETTINGS);
    }
}
